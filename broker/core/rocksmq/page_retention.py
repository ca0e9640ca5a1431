"""Which pages of a channel are removed: by age and by size, over the slowest group.

Only full pages that every group has read are removed, oldest first:
1. by age, those that sweeps have found read by all for `age_ms_max` or longer;
2. by size, as long as all pages read by all have more than `size_bytes_max` together.

A channel without groups keeps everything: nobody has said that it was read.
"""

from dataclasses import dataclass, replace

from broker.core.rocksmq.queue_channel import QueueChannel, QueuePage

PAGE_BYTES = 64 * 1024 * 1024
AGE_MS_MAX = 3 * 24 * 3_600_000
SIZE_BYTES_MAX = 8 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PageRules:
    """Sizes are of payloads. None for age or size: that rule removes nothing."""

    page_bytes: int = PAGE_BYTES
    age_ms_max: int | None = AGE_MS_MAX
    size_bytes_max: int | None = SIZE_BYTES_MAX


def swept(channel: QueueChannel, rules: PageRules, now_ms: int) -> QueueChannel:
    """The channel after a sweep: pages are noted as read by all, or not, and old ones are gone.

    A group that is created or goes back makes pages unread that were read by all before.
    """
    floor = min(channel.positions.values(), default=-1)
    pages = tuple(_noted(page, floor, now_ms) for page in channel.pages)
    read = [page for page in pages if page.acked_ms is not None]
    gone = 0
    if rules.age_ms_max is not None:
        oldest_ms = now_ms - rules.age_ms_max
        while gone < len(read) and (read[gone].acked_ms or 0) <= oldest_ms:
            gone += 1
    if rules.size_bytes_max is not None:
        left_bytes = sum(page.size_bytes for page in read[gone:])
        while gone < len(read) and left_bytes > rules.size_bytes_max:
            left_bytes -= read[gone].size_bytes
            gone += 1
    if not gone:
        return channel if pages == channel.pages else replace(channel, pages=pages)
    return replace(channel, begin_id=pages[gone - 1].end_id + 1, pages=pages[gone:])


def _noted(page: QueuePage, floor: int, now_ms: int) -> QueuePage:
    if floor <= page.end_id:
        return page if page.acked_ms is None else replace(page, acked_ms=None)
    return page if page.acked_ms is not None else replace(page, acked_ms=now_ms)
