"""Every kind of change in a row, with a failure at each step in turn: nothing is half done.

Each write of metadata fails, or takes effect and its answer is lost, or is the last thing that the
process did, or what it was about to do; and whoever lives dies at each step of any kind.
`--ddl-histories 1000` takes each step instead of every 23rd.
"""

from collections.abc import Sequence
from typing import get_args

import pytest

from actors.testing import run_seeded
from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.core.naming import vchannel_name
from broker.model.collection import Collection
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.ddl import (
    AdoptCollection,
    ChangeCompaction,
    ChangeRetention,
    ChangeSchema,
    CreateAlias,
    CreateCollection,
    CreateDatabase,
    CreateIndex,
    CreatePartition,
    Ddl,
    DropAlias,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropPartition,
)
from broker.model.master.table_change import AddCollection, TableChange
from broker.model.retention.compaction import Compaction
from tests.broker.coordinator.broadcast.broadcasting import LOCKS, PROCESS, TASKS, Faults
from tests.broker.master.ddl.history import GIVEN, Told, judge
from tests.broker.master.ddl.naive_table import NaiveCollection, NaiveTable, stored
from tests.broker.master.ddl.random_changes import ROWS, fields
from tests.broker.master.simulated_master import (
    IDS,
    ORACLE,
    PCHANNELS,
    TABLE,
    WINDOW,
    SimulatedMaster,
    given_request,
)

PARAMS = (("index_type", "HNSW"),)
OTHER_PARAMS = (("index_type", "FLAT"),)
OLD = CollectionId(100)
GIVEN_VCHANNEL = vchannel_name(PCHANNELS[2], CollectionId(7000), 0)
BY_A_CLIENT = AddCollection(
    "", "given", CollectionId(7000), (GIVEN_VCHANNEL,), (("_default", PartitionId(7001)),)
)
SCRIPT: Sequence[Ddl | TableChange] = (
    CreateDatabase("air"),
    CreateDatabase("gone"),
    CreateCollection("milvus", 2, None, fields()),
    CreateCollection("rows", 2, ROWS[0], fields(), "air"),
    CreateCollection("plain", 1),
    AdoptCollection("old", OLD, fields()),
    BY_A_CLIENT,
    CreatePartition("milvus", "p"),
    CreatePartition("milvus", "q"),
    CreatePartition("rows", "p", "air"),
    CreateIndex("milvus", "vector", PARAMS, "i"),
    CreateIndex("milvus", "vector", OTHER_PARAMS, "i"),
    CreateIndex("rows", "vector", PARAMS, "", "air"),
    CreateAlias("milvus", "newest"),
    CreateAlias("old", "newest", alter=True),
    CreateAlias("plain", "other"),
    ChangeSchema("rows", ROWS[0], ROWS[1], fields(1), "air"),
    ChangeRetention("rows", 5000, None, "air"),
    ChangeCompaction("plain", Compaction(1000, 2000)),
    DropIndex("rows", "vector", "", "air"),
    DropPartition("milvus", "p"),
    DropAlias("other"),
    DropCollection("plain"),
    CreateCollection("plain", 1),
    DropDatabase("gone"),
)


class Script:
    """One run of it, over the same logs and records in as many processes as it takes."""

    def __init__(self, faults: Faults) -> None:
        self.master = SimulatedMaster(faults)
        self.told = Told()
        self._next = 0

    async def play(self) -> NaiveTable:
        """To its end and the judgement; the table then."""
        before = NaiveTable()
        vchannels = (vchannel_name(PCHANNELS[0], OLD, 0),)
        old = Collection("old", OLD, vchannels, 1)
        before.collections[OLD] = NaiveCollection.of(old)
        records = CollectionRecords(self.master.records)
        await records.create(old, await records.next_id(), await records.loads())
        while not await self.master.live(self._go_on):
            assert self.master.faults.struck == 1
        assert not self.told.refused
        await judge(self.master, self.told, before)
        return await stored(self.master.records)

    async def _go_on(self) -> None:
        while self._next < len(SCRIPT):
            ddl, key = SCRIPT[self._next], f"ours {self._next}"
            if isinstance(ddl, AddCollection):
                request = given_request(ddl, f"{GIVEN} {self._next}")
            else:
                assert isinstance(ddl, Ddl)
                request = self.master.request(ddl, key)
            await self.told.ask(self.master, request)
            self._next += 1


def play(faults: Faults, seed: int = 1) -> NaiveTable:
    try:
        return run_seeded(seed, Script(faults).play)
    except BaseException as error:
        error.add_note(f"{faults}")
        raise


def shape(table: NaiveTable) -> object:
    """Without ids, which differ when some were taken and not used."""
    names = {id: (it.database, it.name) for id, it in table.collections.items()}
    return (
        sorted(
            (
                it.database,
                it.name,
                len(it.vchannels),
                sorted(it.partitions),
                sorted(it.indexes.values()),
                it.rows and it.rows.widths,
                it.version,
                it.announced,
                (it.retention.age_ms_max, it.retention.bytes_max),
            )
            for it in table.collections.values()
        ),
        sorted((*alias, names[id]) for alias, id in table.aliases.items()),
        sorted(table.databases),
    )


def test_without_a_failure_the_script_makes_every_kind_of_change() -> None:
    assert {type(it) for it in SCRIPT} == {*get_args(Ddl)[:-1], AddCollection}
    table = play(Faults())
    assert {it.name for it in table.collections.values()} == {
        *("milvus", "rows", "plain", "old", "given")
    }
    assert not table.clashes


@pytest.mark.parametrize(
    ("path", "after", "lost"),
    [("", False, False), ("", True, True), (PROCESS, False, False), (PROCESS, True, False)],
    ids=["refused", "answer lost", "death before", "death after"],
)
def test_whichever_write_fails_the_change_takes_effect_once_or_can_be_tried_again(
    path: str, after: bool, lost: bool
) -> None:
    wanted = shape(play(Faults()))
    count = Faults(path=path, counted="write")
    play(count)
    assert count.steps > 2 * len(SCRIPT)
    for at in range(1, count.steps + 1):
        faults = Faults(frozenset({at}), after, path, lost, "write")
        assert shape(play(faults)) == wanted, faults
        assert faults.struck == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "path",
    [LOCKS, TASKS, TABLE, IDS, WINDOW, ORACLE, PROCESS],
    ids=["locks", "task", "table", "ids", "window", "oracle", "process"],
)
def test_whoever_dies_at_whichever_step_every_change_takes_effect_once(
    path: str, after: bool, request: pytest.FixtureRequest
) -> None:
    wanted = shape(play(Faults()))
    count = Faults(path=path)
    play(count)
    every = 1 if request.config.getoption("--ddl-histories") >= 1000 else 23
    for at in range(1, count.steps + 1, every):
        faults = Faults(frozenset({at}), after, path)
        assert shape(play(faults, seed=at)) == wanted, faults
