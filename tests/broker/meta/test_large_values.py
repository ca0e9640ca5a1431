"""Snapshots with values larger than a write: whole after a failure between any two writes."""

import random
from dataclasses import replace
from itertools import count

import pytest

from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredClaim, StoredRecovery
from broker.model.ids import CollectionId, MessageId, PChannelName, Term, TimeTick, VChannelName
from broker.model.producer_numbers import ProducedBatch
from broker.model.snapshot import (
    SchemaStart,
    Snapshot,
    SnapshotChange,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)
from broker.ports.meta import MetaError
from broker.ports.meta_writes import PART_BYTES, all_entries
from tests.broker.meta.flaky import Flaky

P = PChannelName("by-dev-rootcoord-dml_1")
PARTS = f"recovery/{P}/part/"
NAMES = [VChannelName(f"{P}_{number}v0") for number in range(7, 10)]


def vchannel(name: VChannelName, size: int, tick: int) -> VChannelSnapshot:
    schema = SchemaStart(1, tick.to_bytes(4, "big") * (size // 4), TimeTick(5))
    return VChannelSnapshot(
        name, CollectionId(7), VChannelState.NORMAL, (), (schema,), TimeTick(5), TimeTick(tick)
    )


def produced(runs: int, tick: int) -> tuple[ProducedBatch, ...]:
    at = MessageId(1 << 60), TimeTick(tick), MessageId(1 << 60)
    return tuple(ProducedBatch(f"{it:064d}", it, 1, *at) for it in range(runs))


def change(tick: int, sizes: dict[VChannelName, int], runs: int | None) -> SnapshotChange:
    return SnapshotChange(
        checkpoint=WalCheckpoint(MessageId(tick), TimeTick(tick)),
        vchannels=tuple([vchannel(name, size, tick) for name, size in sizes.items()]),
        producers=None if runs is None else produced(runs, tick),
    )


class NaiveSnapshot:
    """What may be stored of every object: what its last whole save has left, or any later one."""

    def __init__(self) -> None:
        self.may_be: dict[VChannelName, list[VChannelSnapshot | None]] = {}
        self.producers: list[tuple[ProducedBatch, ...]] = [()]
        self.checkpoints: list[WalCheckpoint | None] = [None]

    def tried(self, saved: SnapshotChange) -> None:
        for each in saved.vchannels:
            self.may_be.setdefault(each.name, [None]).append(each)
        for name in saved.gone_vchannels:
            self.may_be.setdefault(name, [None]).append(None)
        if saved.producers is not None:
            self.producers.append(saved.producers)
        self.checkpoints.append(saved.checkpoint)

    def took_effect(self, saved: SnapshotChange) -> None:
        for name in (*[each.name for each in saved.vchannels], *saved.gone_vchannels):
            self.may_be[name] = self.may_be[name][-1:]
        if saved.producers is not None:
            self.producers = self.producers[-1:]
        self.checkpoints = self.checkpoints[-1:]

    def judge(self, found: Snapshot) -> None:
        stored = {each.name: each for each in found.vchannels}
        for name, them in self.may_be.items():
            assert stored.get(name) in them
        assert found.producers in self.producers
        assert found.checkpoint in self.checkpoints


async def claimed(store: Flaky, term: int, naive: NaiveSnapshot) -> StoredClaim:
    claim = await StoredRecovery(store).claim(P, Term(term))
    assert claim.damage == ()
    naive.judge(claim.snapshot)
    return claim


async def test_a_value_larger_than_a_write_is_read_back_and_nothing_of_it_stays_behind() -> None:
    inner = MemoryMetaStore()
    store, naive = Flaky(inner), NaiveSnapshot()
    claim = await claimed(store, 1, naive)
    for tick, size, runs in ((10, 3 * PART_BYTES, 16_384), (11, PART_BYTES + 1, 9), (12, 8, None)):
        saved = change(tick, {NAMES[0]: size}, runs)
        naive.tried(saved)
        await claim.save(saved)
        naive.took_effect(saved)
        await claimed(Flaky(inner), 1, naive)
        claim = await claimed(store, 1, naive)
    assert [key async for key, _ in all_entries(inner, PARTS)] == []


@pytest.mark.parametrize("seed", range(25))
async def test_whichever_write_fails_every_value_is_an_old_one_or_a_new_one_whole(
    seed: int,
) -> None:
    chance = random.Random(seed)
    inner = MemoryMetaStore()
    store, naive, terms = Flaky(inner), NaiveSnapshot(), count(1)
    claim = await claimed(store, next(terms), naive)
    for tick in range(10, 40):
        sizes = {
            it: chance.choice([8, PART_BYTES, 2 * PART_BYTES]) for it in chance.sample(NAMES, 2)
        }
        saved = change(tick, sizes, chance.choice([None, 3, 9000]))
        if chance.random() < 0.2:
            left = [each for each in saved.vchannels if each.name != NAMES[0]]
            saved = replace(saved, vchannels=tuple(left), gone_vchannels=(NAMES[0],))
        naive.tried(saved)
        store.writes_left = chance.choice([None, 0, 1, 2, 3, 5])
        try:
            await claim.save(saved)
            naive.took_effect(saved)
        except MetaError:
            pass
        store.writes_left = None
        if chance.random() < 0.3:  # a new owner; else the same one saves again
            claim = await claimed(store, next(terms), naive)
    naive.tried(last := change(40, dict.fromkeys(NAMES, 8), 1))
    await claim.save(last)
    naive.took_effect(last)
    await claimed(store, next(terms), naive)
    assert [key async for key, _ in all_entries(inner, PARTS)] == []


@pytest.mark.parametrize("number", range(2))
async def test_a_part_that_is_missing_is_told_and_the_rest_still_holds(number: int) -> None:
    store = Flaky(MemoryMetaStore())
    claim = await StoredRecovery(store).claim(P, Term(1))
    await claim.save(change(10, {NAMES[0]: PART_BYTES, NAMES[1]: 8}, 3))
    parts = [key async for key, _ in all_entries(store, PARTS)]
    assert len(parts) == 2
    await store.write({}, deletes=[parts[number]])
    again = await StoredRecovery(store).claim(P, Term(2))
    (damage,) = again.damage
    assert NAMES[0] in damage
    assert [each.name for each in again.snapshot.vchannels] == [NAMES[1]]
    assert again.snapshot.checkpoint is None
    await again.save(change(11, {NAMES[0]: 8}, 3))
    assert (await StoredRecovery(store).claim(P, Term(3))).damage == ()
    assert [key async for key, _ in all_entries(store, PARTS)] == []
