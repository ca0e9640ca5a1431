"""A channel of the embedded queue: its ids, its pages, the positions of its groups.

A position is the next id to read. What is removed below it, or never was at it, changes nothing:
the group reads the first message at or above it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.core.rocksmq.queue_rules import EARLIEST
from broker.model.rocksmq.queue_refusal import QueueFault, QueueRefusal


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A full page: the messages above the page before it, up to `end_id`."""

    end_id: int
    size_bytes: int
    acked_ms: int | None = None
    """When every group was found to have read it; None while one has not."""


@dataclass(frozen=True, slots=True)
class QueueChannel:
    """What is stored of a channel. Ids are half-open: `begin_id` <= id < `end_id`."""

    begin_id: int = 0
    end_id: int = 0
    open_bytes: int = 0
    """Payload bytes above the last full page."""
    pages: tuple[QueuePage, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)


def appended(
    channel: QueueChannel, first_id: int, sizes: Sequence[int], page_bytes: int
) -> QueueChannel:
    """The channel with messages of these sizes, from `first_id` on.

    The message that takes a page above `page_bytes` is its last one.
    """
    assert first_id >= channel.end_id, (first_id, channel.end_id)
    open_bytes, full = channel.open_bytes, []
    for place, size in enumerate(sizes):
        open_bytes += size
        if open_bytes > page_bytes:
            full.append(QueuePage(first_id + place, open_bytes))
            open_bytes = 0
    return replace(
        channel,
        begin_id=channel.begin_id or first_id,
        end_id=first_id + len(sizes),
        open_bytes=open_bytes,
        pages=(*channel.pages, *full) if full else channel.pages,
    )


def with_position(channel: QueueChannel, group: str, position: int) -> QueueChannel:
    """The channel with a group at this position."""
    return replace(channel, positions={**channel.positions, group: position})


def without_group(channel: QueueChannel, group: str) -> QueueChannel:
    """The channel without a group."""
    rest = {name: at for name, at in channel.positions.items() if name != group}
    return replace(channel, positions=rest)


def ids_fault(name: str, channel: QueueChannel, first_id: int) -> QueueRefusal | None:
    """What is wrong with the ids that messages are to get; None if nothing is."""
    if first_id >= max(channel.end_id, 1):
        return None
    told = (
        f"channel {name!r} is at {channel.end_id}: the IDAllocator gave {first_id}, which is less"
    )
    return QueueRefusal(QueueFault.BAD_ARGUMENT, told + "; ids must grow and be above 0")


def seek_fault(name: str, channel: QueueChannel, position: int) -> QueueRefusal | None:
    """What is wrong with a position to seek to; None if nothing is."""
    if position == EARLIEST or channel.begin_id <= position <= channel.end_id:
        return None
    if not channel.end_id:
        told = f"the channel has no messages yet; seek to {EARLIEST}, the beginning"
    elif position < channel.begin_id:
        told = f"messages below {channel.begin_id} are removed; seek to it, or to {EARLIEST}"
    else:
        told = f"the next message is {channel.end_id} or later; seek to it, or below"
    return QueueRefusal(QueueFault.OUT_OF_RANGE, f"channel {name!r}, seek to {position}: {told}")


def commit_fault(group: str, name: str, position: int, answered: int) -> QueueRefusal | None:
    """What is wrong with a position to be stored for what was processed; None if nothing is."""
    if EARLIEST <= position <= answered:
        return None
    told = f"consumer group {group!r} of channel {name!r} was given nothing above {answered - 1}"
    return QueueRefusal(QueueFault.OUT_OF_RANGE, f"commit up to {position - 1}: {told}")


def unread(channel: QueueChannel, position: int) -> bool:
    """Whether there may be a message at or above the position."""
    return max(position, channel.begin_id) < channel.end_id
