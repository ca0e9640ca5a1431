"""What a log says of its purges, however they are learned."""

import random
from dataclasses import replace

import pytest

from broker.core.space.purges import PurgeTable, UnreadablePurge, decode_purge, encode_purge
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import PURGE
from broker.model.record import Record
from broker.model.retention.holders import HolderKind, PassCause, Passed
from broker.model.retention.purge import PASSED_KEPT_MS, PASSED_MAX, Purge

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
        assert table.floors() == table.floors() == {V: 60}
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


def passed(name: str, at_ms: int, tick: int = 5, kind: HolderKind = HolderKind.CURSOR) -> Passed:
    return Passed(kind, name, PassCause.BYTES, 7, 6, TimeTick(tick), at_ms)


@pytest.mark.parametrize("seed", range(40))
def test_whoever_was_passed_lately_is_named_whatever_is_read_again(seed: int) -> None:
    """Against a list of everybody that was ever passed; lives end between purges, too."""
    chosen = random.Random(seed)
    table, now_ms, history = PurgeTable(), 10**12, list[tuple[str, Passed]]()
    log: list[Record] = []
    for upto in range(1, 60):
        vchannel, now_ms = chosen.choice((V, W)), now_ms + chosen.randrange(PASSED_KEPT_MS // 8)
        kinds = (HolderKind.CURSOR, HolderKind.GROUP)
        lost = [
            passed(name, now_ms, upto, chosen.choice(kinds))
            for name in chosen.sample([f"h{it}" for it in range(12)], chosen.randrange(4))
        ]
        history += [(vchannel, it) for it in lost]
        known = table.purges.get(vchannel)
        made = purge(upto, vchannel).passing(lost, known, now_ms)
        log.append(replace(recorded(encode_purge(made)), vchannel=vchannel))
        assert table.observe(log[-1]) == []
        match chosen.randrange(4):
            case 0:
                table = PurgeTable(table.all())
            case 1:
                table = PurgeTable()
                for record in log:
                    table.observe(record)
            case _:
                pass
        named = {
            (of, it.kind, it.name): it
            for of, it in history
            if now_ms - it.passed_ms < PASSED_KEPT_MS
        }
        found = list(table.passed(now_ms))
        assert len({(of, it.kind, it.name) for of, it in found}) == len(found)
        assert all(named[of, it.kind, it.name] == it for of, it in found)
        for of in (V, W):
            mine = [it for each, it in found if each == of]
            naive = [it for (each, _, _), it in named.items() if each == of]
            newest = sorted(naive, key=lambda it: it.passed_ms)[-PASSED_MAX:]
            assert len(mine) == len(newest)
            assert {it.passed_ms for it in mine} == {it.passed_ms for it in newest}


def test_a_holder_of_a_kind_of_a_later_release_does_not_hide_the_purge() -> None:
    body = b'{"upto":60,"next_id":7,"whole_id":5,"passed":[["moon","m","bytes",1,2,3,4],'
    body += b'["cursor","c","moon",1,2,3,4],["group","g","time",1,2,3,4]]}'
    (found,) = decode_purge(V, body, TimeTick(90)).passed
    assert found == Passed(HolderKind.GROUP, "g", PassCause.TIME, 1, 2, TimeTick(3), 4)
