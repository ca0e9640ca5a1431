"""Limits of storage of vchannels without a collection in the catalog: asked for 100 at a look."""

from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.ports.row_schemas import NoRowSchemas, NoShard, Shard
from broker.ports.space.collection_sizes import NamedShards
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_purging import MINE, OTHERS
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, fill
from tests.broker.node.space.test_storage_watch import (
    FailingLog,
    FailingWal,
    SizesFake,
    limited,
)
from tests.broker.node.world import PCHANNEL, World, running_node

BEFORE = [f"{PCHANNEL}_1v{it}" for it in range(350)]
"""They are asked for before MINE, by their names: in the first four looks."""


class Asked(NoRowSchemas):
    """A catalog that has no collection, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Shard | NoShard] = {}

    async def shard(self, vchannel: str) -> Shard | NoShard:
        self.asked.append(vchannel)
        return self.answers.get(vchannel, NoShard.OTHER)


def unnamed() -> SizesFake:
    sizes = SizesFake()
    sizes.named = NamedShards(1, {})
    return sizes


def collections(world: World) -> list[str]:
    return [it.collection for it in world.node.storage.now.uses]


def test_of_a_vchannel_that_was_not_asked_for_yet_what_was_told_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FailingLog, "failures", 100)

    async def scenario() -> None:
        sizes, catalog = unnamed(), Asked()
        wal = FailingWal(segment_bytes=SEGMENT_BYTES)
        sizes.say({**dict.fromkeys(BEFORE, 1), MINE: 1 << 20})
        limits = limited("collection:7 storage=500000")
        async with running_node(wal, limits, sizes=sizes, catalog=catalog) as world:
            await world.assign()
            await world.clock.sleep(1.5)
            assert world.node.open_channels.find(PCHANNEL) is not None
            assert MINE not in catalog.asked
            assert sizes.told.bytes[MINE] == 1 << 20
            await world.clock.sleep(3)
            assert world.node.storage.refusal(MINE) is not None, "the log is not read yet"
            assert {*BEFORE}.isdisjoint(sizes.told.bytes), "they have no limit"

    run_seeded(31, scenario)


def test_while_the_catalog_changes_every_second_all_are_asked_for_once() -> None:
    async def scenario() -> None:
        sizes, catalog = unnamed(), Asked()
        sizes.say(dict.fromkeys(BEFORE, 1))
        limits = limited("collection:7 storage=100000; collection:1 storage=1GiB")
        async with running_node(MemoryWal(), limits, sizes=sizes, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            for _ in range(5):
                sizes.named = replace(sizes.named, revision=sizes.named.revision + 1)
                await world.clock.sleep(1)
            assert sorted(collections(world)) == ["1", "7"]
            assert world.node.storage.refusal(MINE) is not None
            assert len(catalog.asked) == len({*catalog.asked})

    run_seeded(32, scenario)


def test_one_that_the_catalog_has_later_goes_by_its_collection_alone() -> None:
    async def scenario() -> None:
        sizes, catalog = unnamed(), Asked()
        limits = limited("collection:7 storage=1GiB; collection:clicks storage=1GiB")
        async with running_node(MemoryWal(), limits, sizes=sizes, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(2)
            assert collections(world) == ["7"]
            sizes.named = NamedShards(2, {("", "clicks"): [MINE, OTHERS]})
            await world.clock.sleep(2)
            assert collections(world) == ["clicks"]
            sizes.named = NamedShards(3, {})
            await world.clock.sleep(2)
            assert collections(world) == []

    run_seeded(33, scenario)


def test_one_of_which_nothing_is_left_is_forgotten_and_asked_for_again() -> None:
    async def scenario() -> None:
        sizes, catalog, gone = unnamed(), Asked(), f"{PCHANNEL}_9v0"
        limits = limited("collection:9 storage=1GiB")
        async with running_node(MemoryWal(), limits, sizes=sizes, catalog=catalog) as world:
            sizes.say({gone: 5})
            await world.clock.sleep(2)
            assert collections(world) == ["9"]
            await sizes.tell({}, [gone])
            await world.clock.sleep(2)
            assert collections(world) == []
            sizes.say({gone: 5})
            await world.clock.sleep(2)
            assert (collections(world), catalog.asked) == (["9"], [gone, gone])

    run_seeded(34, scenario)


def test_of_one_that_was_created_since_what_was_told_stays_until_its_name_is_known() -> None:
    async def scenario() -> None:
        sizes, catalog = unnamed(), Asked()
        catalog.answers[MINE] = Shard("clicks", False)
        limits = limited("collection:clicks storage=1MiB")
        async with running_node(MemoryWal(), limits, sizes=sizes, catalog=catalog) as world:
            await world.assign()
            sizes.say({MINE: 1 << 20})
            await world.clock.sleep(2)
            assert sizes.told.bytes == {MINE: 1 << 20}
            sizes.named = NamedShards(2, {("", "clicks"): [MINE]})
            await world.clock.sleep(1)
            assert collections(world) == ["clicks"]

    run_seeded(35, scenario)
