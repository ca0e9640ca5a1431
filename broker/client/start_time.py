"""Starts that are a time or a tick: the first tick to read, and what retention removed of that."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from broker.client.batch_tick import BatchTick
from broker.client.errors import BadTarget, OutOfRange
from broker.core.time import tso
from broker.model.channel import ChannelOffsets
from broker.model.ids import TimeTick

Time = datetime | str
"""A datetime, or its text in ISO 8601; without a time zone it is local time."""

MS_MAX: Final = (1 << 45) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tick_at(time: Time) -> TimeTick:
    """The smallest tick of this time, to the millisecond above. Raises BadTarget."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise BadTarget(
                f"{time!r} is not a time; use a datetime or ISO 8601, as in 2026-01-02T03:04"
            ) from None
    if not isinstance(time, datetime):
        raise BadTarget(f"{time!r} is not a time; use a datetime or ISO 8601")
    try:
        # `astimezone` takes a time without a zone for a local one.
        since = time.astimezone(UTC) - _EPOCH
    except (OverflowError, ValueError):
        raise BadTarget(f"{time.isoformat()} is out of range; use a year from 2 to 9998") from None
    return tso.compose(min(max(-(-since // timedelta(milliseconds=1)), 0), MS_MAX), 0)


def time_of(start: object) -> Time | None:
    """The time, if the start is one: a datetime, or ("time", t)."""
    match start:
        case datetime():
            return start
        case ("time", datetime() | str() as time):
            return time
        case _:
            return None


def refuse_tick(name: str, tick: int, held: ChannelOffsets, channels: Sequence[str]) -> None:
    """Raise OutOfRange when retention removed messages with this tick or a larger one.

    Not for the ticks 0 and 1, before every message: whoever starts there wants what is left.
    BadTarget for the closed tick of a batch that is of other channels than `channels`.
    """
    if isinstance(tick, BatchTick) and (others := tick.others(list(channels))):
        raise BadTarget(
            f"{int(tick)} is the closed tick of a batch of {', '.join(tick.channels)}; {others[0]}"
            " may be behind, and its messages would be skipped. Use a cursor, or start each"
            " vchannel at a tick of its own"
        )
    if tick > 1:
        refuse_removed(name, tick - 1, held)


def no_start(start: object) -> str:
    """The text of the error for something that is no start."""
    return (
        f"{start!r} is no start; use 'all', 'latest', a message id, ('tick', n), a datetime, a cut,"
        " or a cursor"
    )


def refuse_removed(name: str, after: int, held: ChannelOffsets, from_id: int = 0) -> None:
    """Raise OutOfRange when retention removed messages of the pchannel behind the tick `after`.

    `from_id`: a message that is still needed, such as the first of a transaction that was open at
    the tick; 0: none. Whether one of the removed messages was of this vchannel cannot be known.
    """
    if held.removed_tick > after:
        raise OutOfRange(name, held.first_id - 1, held.first_id, held.next_id, after_tick=after)
    if 0 < from_id < held.first_id:
        raise OutOfRange(name, from_id, held.first_id, held.next_id)
