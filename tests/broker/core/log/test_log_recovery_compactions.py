"""How far vchannels are compacted, in the state that a replay leaves."""

from broker.core.compaction.compaction_table import encode_compacted
from broker.core.log.log_recovery import RecoveryState
from broker.core.log.record_drafts import NO_TXN
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import COMPACTION
from broker.model.record import Record
from broker.model.retention.compaction import Compacted
from broker.model.snapshot import Snapshot
from broker.model.txn import TxnPart
from tests.broker.core.log.test_log_recovery_groups import no_effect

V = "by-dev-rootcoord-dml_0_1v0"


def state_at(clean: int, tick: int) -> Compacted:
    return Compacted(V, TimeTick(clean), TimeTick(clean), tick=TimeTick(tick))


def recorded(it: Compacted) -> Record:
    at, body = MessageId(it.tick), encode_compacted(it)
    part = TxnPart(NO_TXN.id, 0, MessageId(0), 0)
    return Record(Term(1), at, it.tick, at, COMPACTION, V, (len(body),), body, part)


def test_it_is_in_the_snapshot_and_a_replay_from_it_knows_it() -> None:
    state = RecoveryState(Snapshot(), no_effect)
    assert state.observe(recorded(state_at(5, 8))) == []
    assert state.take().compacted == (state_at(5, 8),)
    assert state.take().compacted == ()
    again = RecoveryState(state.snapshot(), no_effect)
    assert again.compactions.all() == (state_at(5, 8),)
    assert again.observe(recorded(state_at(5, 8))) == [], "below the checkpoint"
    assert again.take().compacted == ()
    assert again.observe(recorded(state_at(7, 9))) == []
    assert again.compactions.of(V) == state_at(7, 9)


def test_another_log_forgets_it() -> None:
    other = RecoveryState(Snapshot(), no_effect)
    other.renounce(Snapshot(compacted=(state_at(5, 8),)))
    assert other.take().gone_compacted == (V,)
