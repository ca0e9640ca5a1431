"""What a log says of its purges, however they are learned."""

import pytest

from broker.core.space.purges import PurgeTable, UnreadablePurge, decode_purge, encode_purge
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import PURGE
from broker.model.record import Record
from broker.model.retention.purge import Purge

V, W = "c_1v0", "c_2v0"


def purge(upto: int, vchannel: str = V, tick: int = 90) -> Purge:
    return Purge(vchannel, TimeTick(upto), MessageId(7), MessageId(5), TimeTick(tick))


def recorded(body: bytes, tick: int = 90) -> Record:
    at = MessageId(9)
    return Record(Term(1), at, TimeTick(tick), at, PURGE, V, (len(body),), body)


def test_a_purge_comes_back_as_it_was_stored() -> None:
    assert decode_purge(V, encode_purge(purge(60)), TimeTick(90)) == purge(60)


def test_a_purge_says_up_to_where_it_removes_anything() -> None:
    assert purge(60).removes_upto == 60, "of an older release: not known"
    first = purge(60).removing(TimeTick(40), None)
    assert first.removes_upto == 40
    table = PurgeTable([first])
    assert (table.upto(V), table.removes_upto(V), table.removes_upto(W)) == (60, 40, 0)
    assert decode_purge(V, encode_purge(first), TimeTick(90)) == first
    later = purge(80).removing(TimeTick(0), first)
    assert later.removes_upto == 40, "nothing more, but what the first one removed stays removed"
    assert purge(80).removing(TimeTick(70), first).removes_upto == 70
    assert purge(80).removing(TimeTick(85), first).removes_upto == 80, "its record reaches beyond"
    assert purge(80).removing(TimeTick(0), purge(60)).removes_upto == 60
    assert purge(80).removing(None, first).removes_upto == 80


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{}", b'{"upto":"x","next_id":1,"whole_id":1}', b"[" * 5000),
        b'{"upto":Infinity,"next_id":1,"whole_id":1}',
        b'{"upto":1,"next_id":1,"whole_id":1,"newest":null}',
    ],
)
def test_what_cannot_be_read_is_told_and_changes_nothing(body: bytes) -> None:
    with pytest.raises(UnreadablePurge):
        decode_purge(V, body, TimeTick(1))
    table = PurgeTable()
    assert "message 9: a purge is damaged" in table.observe(recorded(body))[0]
    assert table.all() == ()


def test_the_purge_that_reaches_furthest_counts_in_any_order() -> None:
    for order in ((60, 40, 60), (40, 60, 50), (60, 60)):
        table = PurgeTable()
        for upto in order:
            assert table.observe(recorded(encode_purge(purge(upto)))) == []
        assert table.all() == (purge(60),)
        assert table.floors() == {V: 60}
        assert (table.upto(V), table.upto(W)) == (60, 0)
        assert table.version == 1 + (order == (40, 60, 50))


def test_changes_are_those_since_the_last_save_and_retention_forgets() -> None:
    later = Purge(W, TimeTick(30), MessageId(8), MessageId(5), TimeTick(90))
    table = PurgeTable([purge(60), later])
    assert (table.changes(), table.gone) == ((), set())
    table.apply(purge(70))
    assert table.changes() == (purge(70),)
    table.forget_below(MessageId(6))
    assert table.gone == set(), "messages below the purge are left"
    table.forget_below(MessageId(7))
    assert (table.changes(), table.gone) == ((), {V})
    table.apply(purge(80))
    assert (table.changes(), table.gone) == ((purge(80),), set())
    table.clear_changes()
    assert (table.changes(), table.gone) == ((), set())
    assert table.all() == (later, purge(80))


def test_the_newest_purge_is_that_of_the_newest_record_not_the_one_that_reaches_furthest() -> None:
    assert PurgeTable().newest_tick() == 0
    assert PurgeTable([purge(60, tick=80), purge(30, W, tick=95)]).newest_tick() == 95
