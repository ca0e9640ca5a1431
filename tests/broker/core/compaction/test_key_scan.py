"""Passes over random logs with transactions, against a list."""

import random

import pytest

from broker.core.compaction.key_scan import ENTRY_BYTES, KeyScan, Target
from broker.model.ids import TimeTick
from tests.broker.core.compaction.compacted_log import (
    ALL,
    CompactedLog,
    LogReader,
    Row,
    Sent,
    batch,
    no_key,
)
from tests.broker.core.txn.test_transactions import V, Writer

KEYS = [b"a", b"b", b"c", b"d"]


def rows(chance: random.Random) -> list[Row]:
    return [
        (
            None if chance.random() < 0.05 else chance.choice(KEYS),
            b"" if chance.random() < 0.25 else chance.randbytes(chance.randrange(1, 30)),
        )
        for _ in range(chance.randrange(1, 5))
    ]


def step(log: CompactedLog, chance: random.Random) -> None:
    txns = list(log.bodies)
    match chance.randrange(8):
        case 0 | 1 | 2:
            log.append(rows(chance))
        case 3 if len(txns) < 3:
            log.begin()
        case 4 | 5 if txns:
            log.append(rows(chance), chance.choice(txns))
        case 6 if txns:
            log.end(chance.choice(txns), commit=chance.random() < 0.7)
        case _:
            log.seal()


def table_of(sent: list[Sent]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for it in sent:
        if it.key is not None and it.payload:
            found[it.key] = it.payload
        elif it.key is not None:
            found.pop(it.key, None)
    return found


def check(log: CompactedLog, chance: random.Random, horizon: int) -> None:
    found = LogReader(log).finish(chance.choice((1, 200, ALL)))
    order = {it: at for at, it in enumerate(log.delivered)}
    places = [order[it] for it in found]
    assert places == sorted(set(places))
    assert table_of(found) == table_of(log.delivered)
    upto = log.uptos.get(V[0], 0)
    assert set(found) >= {it for it in log.delivered if it.tick > upto or it.key is None}
    left = {it for it in found if it.tick <= log.clean and it.key is not None}
    newest = log.newest(log.clean)
    # A crashed pass that reached further has removed what superseded the others up to here.
    assert upto > log.clean or left <= set(newest.values())
    kept = [it for key, it in newest.items() if it == log.newest(upto)[key]]
    assert all(it in left or (not it.payload and it.tick <= horizon) for it in kept)


@pytest.mark.parametrize("seed", range(60))
def test_any_pass_leaves_the_newest_of_each_key_and_no_reader_gets_anything_torn(
    seed: int,
) -> None:
    chance = random.Random(seed)
    log, horizon = CompactedLog(), TimeTick(0)
    reader = LogReader(log)
    for _ in range(150):
        step(log, chance)
        if chance.random() < 0.3:
            reader.step(chance.choice((1, 100, 1000)))
        if chance.random() < 0.1:
            reader.resume()
        if chance.random() < 0.1:
            log.seal()
            size = chance.choice((ENTRY_BYTES, 3 * ENTRY_BYTES, ALL))
            crash = chance.choice((0, 1, 2, ALL))
            before = log.clean
            if log.compact(size, horizon, crash):
                horizon = max(horizon, before)
            check(log, chance, max(horizon, before))
    for txn in list(log.bodies):
        log.end(txn, commit=True)
    log.seal()
    had = reader.finish(300)
    order = {it: at for at, it in enumerate(log.delivered)}
    places = [order[it] for it in had]
    assert places == sorted(set(places)), "nothing twice, nothing out of order"
    for key, value in table_of(log.delivered).items():
        assert [it.payload for it in had if it.key == key][-1] == value


def test_a_full_map_ends_the_scan_at_a_record_and_the_next_one_goes_on() -> None:
    log = CompactedLog()
    for at in range(10):
        log.append([(b"%d" % at, b"x")])
        log.append([(b"%d" % at, b"y")])
    log.seal()
    upto = log.records[-1].last_tick
    passes = 0
    while log.clean < upto:
        before = log.clean
        assert log.compact(3 * ENTRY_BYTES, TimeTick(0))
        assert log.clean > before, "each pass gets further"
        passes += 1
    assert passes > 3
    assert [it.payload for it in LogReader(log).finish()] == [b"y"] * 10


def test_keys_of_an_open_transaction_count_and_one_is_always_finished() -> None:
    log = CompactedLog()
    log.begin()
    (txn,) = log.bodies
    log.append([(b"%d" % at, b"x") for at in range(9)], txn)
    log.end(txn, commit=True)
    log.seal()
    scan = KeyScan({V[0]: Target()}, TimeTick(1 << 62), ENTRY_BYTES, no_key)
    entries = []
    for record in log.records:
        scan.take(record)
        entries.append(scan.entries)
    assert max(entries) == 9
    assert len(scan.newest) == 9


def test_steps_of_transactions_that_began_before_the_scan_say_nothing() -> None:
    log = CompactedLog()
    log.begin()
    (txn,) = log.bodies
    log.append([(b"a", b"x")], txn)
    log.end(txn, commit=True)
    log.seal()
    scan = KeyScan({V[0]: Target()}, TimeTick(1 << 62), ALL, no_key)
    for record in [it for it in log.records if it.kind != 900]:
        assert scan.take(record)
    assert scan.newest == {}


def test_other_vchannels_and_other_kinds_are_passed_over() -> None:
    writer = Writer()
    writer.one(batch([(b"a", b"x")], vchannel=V[1]))
    writer.one(batch([(b"a", b"x")]))
    scan = KeyScan({V[0]: Target()}, TimeTick(1 << 62), ALL, no_key)
    for record in writer.records:
        scan.take(record)
        scan.keep_shadowing(record)
    assert len(scan.newest) == 1
