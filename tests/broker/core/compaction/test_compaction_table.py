"""How far vchannels are compacted: from records, saved, and forgotten."""

from dataclasses import replace

import pytest

from broker.core.compaction.compaction_table import (
    CompactionTable,
    UnreadableCompaction,
    decode_compacted,
    encode_compacted,
)
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import COMPACTION
from broker.model.record import Record
from broker.model.retention.compaction import Compacted

STATE = Compacted("v", TimeTick(30), TimeTick(20), TimeTick(10), 1234, 5, TimeTick(40))


def word(state: Compacted, body: bytes | None = None) -> Record:
    stored = encode_compacted(state) if body is None else body
    id = MessageId(state.tick)
    return Record(Term(1), id, state.tick, id, COMPACTION, state.vchannel, (len(stored),), stored)


def test_a_state_comes_back_as_it_was_stored() -> None:
    assert decode_compacted("v", encode_compacted(STATE), TimeTick(40)) == STATE
    for bad in (b"{", b"[]", b"{}", b'{"upto":"x"}', b'{"upto":1}'):
        with pytest.raises(UnreadableCompaction):
            decode_compacted("v", bad, TimeTick(1))


def test_the_newest_record_counts_and_what_is_missing_never_becomes_less() -> None:
    table = CompactionTable()
    assert table.of("v") == Compacted("v")
    assert table.observe(word(STATE)) == []
    assert table.observe(word(replace(STATE, tick=TimeTick(39), clean=TimeTick(1)))) == []
    assert (table.of("v"), table.version) == (STATE, 1)
    newer = replace(STATE, upto=TimeTick(7), clean=TimeTick(25), tick=TimeTick(41))
    table.apply(newer)
    assert table.uptos == {"v": 30}
    assert (table.all(), table.changes(), table.changed) == ((newer,), (newer,), {"v"})
    table.clear_changes()
    assert table.changes() == ()
    (wrong,) = table.observe(word(replace(STATE, tick=TimeTick(50)), b"?"))
    assert wrong.startswith("message 50: a compaction is damaged")


def test_what_retention_has_removed_is_forgotten() -> None:
    table = CompactionTable([STATE])
    table.forget_removed(TimeTick(29))
    assert table.gone == set()
    table.forget_removed(TimeTick(30))
    assert (table.gone, table.all(), dict(table.uptos)) == ({"v"}, (), {})
    table.apply(STATE)
    assert table.gone == set()
