"""Purges in the state that a replay leaves."""

from broker.core.log.log_recovery import RecoveryState
from broker.core.log.record_drafts import NO_TXN
from broker.core.space.purges import encode_purge
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import PURGE, MessageType
from broker.model.record import Record
from broker.model.retention.purge import Purge
from broker.model.snapshot import Snapshot
from broker.model.txn import TxnPart
from tests.broker.core.log.test_log_recovery_groups import no_effect

V = "by-dev-rootcoord-dml_0_1v0"


def purge(upto: int, tick: int) -> Purge:
    return Purge(V, TimeTick(upto), MessageId(3), MessageId(2), TimeTick(tick))


def recorded(it: Purge) -> Record:
    at, body = MessageId(it.tick), encode_purge(it)
    part = TxnPart(NO_TXN.id, 0, MessageId(0), 0)
    return Record(Term(1), at, it.tick, at, PURGE, V, (len(body),), body, part)


def test_a_purge_is_in_the_snapshot_and_a_replay_from_it_knows_it() -> None:
    state = RecoveryState(Snapshot(), no_effect)
    assert state.observe(recorded(purge(5, 8))) == []
    change = state.take()
    assert change.purges == (purge(5, 8),)
    assert state.take().purges == ()
    again = RecoveryState(state.snapshot(), no_effect)
    assert again.purges.all() == (purge(5, 8),)
    assert again.observe(recorded(purge(5, 8))) == [], "below the checkpoint"
    assert again.take().purges == ()
    assert again.observe(recorded(purge(7, 9))) == []
    assert again.purges.upto(V) == 7


def test_a_drop_keeps_the_purge_and_purges_of_another_log_leave_the_store() -> None:
    state = RecoveryState(Snapshot(), no_effect)
    state.observe(recorded(purge(5, 8)))
    at = MessageId(9)
    kind = MessageType.DROP_COLLECTION
    state.observe(Record(Term(1), at, TimeTick(9), at, kind, V, (1,), b"x"))
    assert state.purges.all() == (purge(5, 8),)
    assert state.take().gone_purges == ()
    other = RecoveryState(Snapshot(), no_effect)
    other.renounce(Snapshot(purges=(purge(5, 8),)))
    assert other.take().gone_purges == (V,)
