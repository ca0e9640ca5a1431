"""When a group gets a message: rules about its delay and its time to live.

A delayed message is passed over where it lies, and read where its copy was released. The time to
live begins where the group reads the message: at its own tick, or at that of its release.
"""

from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.delivery_times import AHEAD_MS_MAX, DeliveryTimes
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick


def is_delayed(times: DeliveryTimes, tick: TimeTick) -> bool:
    """Whether a message that is read at this tick is due later. One of the past is due at once."""
    return due_tick(times.at_ms) > tick


def is_expired(times: DeliveryTimes, tick: TimeTick, now: TimeTick) -> bool:
    """Whether a message that is read at `tick` has outlived its time at the closed tick `now`."""
    return bool(times.ttl_ms) and tick + (times.ttl_ms << TICK_LOGICAL_BITS) <= now


def due_tick(at_ms: int) -> TimeTick:
    """The first tick of this Unix time."""
    return TimeTick(at_ms << TICK_LOGICAL_BITS)


def times_refusal(times: DeliveryTimes, now: TimeTick) -> Refusal | None:
    """Why a message cannot have these times; None if it can."""
    ahead_ms = times.at_ms - (now >> TICK_LOGICAL_BITS)
    days = AHEAD_MS_MAX // (24 * 3600 * 1000)
    if ahead_ms > AHEAD_MS_MAX:
        cause = f"deliver_at is {ahead_ms} ms ahead; at most {AHEAD_MS_MAX} ms ({days} days)"
    elif times.ttl_ms > AHEAD_MS_MAX:
        cause = f"a time to live of {times.ttl_ms} ms; at most {AHEAD_MS_MAX} ms ({days} days)"
    else:
        return None
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
