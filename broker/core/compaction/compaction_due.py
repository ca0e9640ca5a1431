"""When a pass of compaction is worth it, as in Kafka: by the share of a log that is not clean.

A pass reads and rewrites up to all of a vchannel. With a share of a half, it does so once for each
time that as much came as was there: so each byte is rewritten a few times, however long it stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.model.ids import TimeTick
from broker.model.retention.compaction import Compacted, Compaction


@dataclass(frozen=True, slots=True)
class CompactionShares:
    """A pass is due when at least `bytes_min` are not clean, and as many per cent of all."""

    bytes_min: int = 256 * 1024
    dirty_percent: int = 50


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """What a segment that ends at `last_tick` has of a vchannel."""

    last_tick: TimeTick
    bytes: int


def dirty_bytes(parts: Iterable[SegmentShare], clean: TimeTick) -> int:
    """About how much of a vchannel is not clean: segments across the tick count as a whole."""
    return sum([it.bytes for it in parts if it.last_tick > clean])


def is_due(dirty: int, total: int, shares: CompactionShares) -> bool:
    """Whether so much of a vchannel is not clean that a pass is worth it."""
    return dirty >= max(1, shares.bytes_min) and dirty * 100 >= shares.dirty_percent * total


def tombstones_due(it: Compacted, policy: Compaction, now_ms: int) -> bool:
    """Whether there are tombstones that may go now."""
    return bool(it.tombstones and it.horizon) and now_ms >= it.horizon_ms + policy.tombstone_ms


def after_pass(
    before: Compacted, clean: TimeTick, tombstones: int, *, now_ms: int, gone: bool
) -> Compacted:
    """The state behind a pass that has covered everything up to `clean`.

    `gone`: tombstones up to the horizon have gone, so that the next ones wait from now on. Where
    none could go, what they delete is held: they wait for a pass that covers more, and not for the
    next look, which would find the same.
    """
    horizon, horizon_ms = before.horizon, before.horizon_ms
    if gone and clean <= before.clean and tombstones >= before.tombstones:
        horizon, horizon_ms = TimeTick(0), 0
    elif gone or not horizon:
        horizon, horizon_ms = (clean, now_ms) if tombstones else (TimeTick(0), 0)
    return Compacted(
        before.vchannel, max(before.upto, clean), clean, horizon, horizon_ms, tombstones
    )
