"""Where a log continues, and the time tick that closes what it holds so far."""

from collections.abc import Sequence

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import ClosedTick, MessageType
from broker.model.record import Record
from broker.value import value


@value
class LogEnd:
    """Where the log continues. `open_txn_id`: the begin of the oldest open transaction."""

    term: Term
    next_id: MessageId
    last_tick: TimeTick
    open_txn_id: MessageId | None = None


def time_tick_record(tick: TimeTick, end: LogEnd) -> Record:
    """A time tick record: no message with a tick up to `tick` will follow."""
    assert tick > end.last_tick, (tick, end.last_tick)
    return Record(
        term=end.term,
        base_id=end.next_id,
        base_tick=tick,
        last_confirmed_id=last_confirmed(end.next_id, end),
        kind=MessageType.TIME_TICK,
        vchannel="",
        sizes=(0,),
        body=b"",
    )


def end_after(records: Sequence[Record], end: LogEnd) -> LogEnd:
    """Where the log continues after these records, which change no transaction."""
    if not records:
        return end
    last = records[-1]
    return LogEnd(end.term, last.next_id, last.last_tick, end.open_txn_id)


def closed_tick(tick: TimeTick, end: LogEnd) -> ClosedTick:
    """The announcement that `tick` is closed, when no record says so.

    It carries the last confirmed id of the newest message as its id.
    """
    newest = last_confirmed(MessageId(end.next_id - 1), end)
    return ClosedTick(tick, newest, newest, end.term, persisted=False)


def last_confirmed(own_id: MessageId, end: LogEnd) -> MessageId:
    """What a message confirms: its own id, or the begin of the oldest open transaction."""
    return own_id if end.open_txn_id is None else min(own_id, end.open_txn_id)
