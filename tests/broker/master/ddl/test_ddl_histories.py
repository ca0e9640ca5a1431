"""Random changes with deaths at any step: the table is the fold of the control channel.

`--ddl-histories N` plays more of them.
"""

import random
from collections.abc import Iterator
from contextlib import suppress

import anyio
import pytest

from actors.testing import run_seeded
from broker.codec.milvus_schemas import table_schema
from broker.coordinator.broadcast.messages import ListBroadcasts
from broker.core.naming import is_control_channel
from broker.model.collection import RowSchema
from broker.model.failure import Refused
from broker.model.ids import BroadcastId
from broker.model.master.ddl import (
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
from broker.model.master.fields import Field, FieldType
from broker.model.master.table_change import AddCollection, AddPartition
from tests.broker.coordinator.broadcast.broadcasting import LOCKS, TASKS, Faults
from tests.broker.master.ddl.naive_table import NaiveTable, stored
from tests.broker.master.simulated_master import CONTROL, IDS, TABLE, SimulatedMaster

FIELDS = table_schema("any", [Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "4"),))])
ROWS = RowSchema(b"arrow", (1,))
NAMES = ("a", "b", "c")
VICTIMS = (LOCKS, TASKS, TABLE, IDS, "")
CHANGES = 24
PROCESSES = 3


def some_change(chance: random.Random) -> Ddl:
    """Any change of few names, so that they meet; many of them are refused."""
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    database, part = chance.choice(("", "", "db")), chance.choice(("p", "q"))
    rows = chance.random() < 0.7
    create = CreateCollection(
        name, chance.randint(1, 3), ROWS if rows else None, FIELDS if rows else None, database
    )
    params = (("index_type", chance.choice(("HNSW", "FLAT"))),)
    changes: list[Ddl] = [
        create,
        create,
        create,
        DropCollection(name, database),
        CreatePartition(name, part, database),
        CreatePartition(name, part, database),
        DropPartition(name, part, database),
        CreateIndex(name, "vector", params, chance.choice(("", "i")), database),
        DropIndex(name, "vector", chance.choice(("", "i")), database),
        CreateAlias(name, f"{other}_alias", chance.random() < 0.5, database),
        CreateAlias(name, other, chance.random() < 0.5, database),
        DropAlias(f"{other}_alias", database),
        CreateDatabase("db"),
        DropDatabase("db"),
    ]
    return chance.choice(changes)


async def play(master: SimulatedMaster, chance: random.Random) -> None:
    """Three processes one after another; in each some actor dies, or the store fails, anywhere."""
    for _ in range(PROCESSES):
        faults = master.faults
        faults.at = frozenset(chance.sample(range(1, 160), 6))
        faults.after, faults.path = chance.random() < 0.5, chance.choice(VICTIMS)
        faults.steps, faults.last = 0, 0
        async with master.process() as system:
            faults.system = system
            async with anyio.create_task_group() as group:
                for _ in range(CHANGES // PROCESSES):
                    group.start_soon(attempt, master, some_change(chance), chance.random())
            faults.system = None
            # Sometimes the process ends with work left: callers leave, tasks stay.
            if chance.random() < 0.5:
                ended = some_change(chance)
                with anyio.move_on_after(chance.uniform(0.0, 0.02)), suppress(Refused):
                    await master.change(ended)


async def attempt(master: SimulatedMaster, ddl: Ddl, after_s: float) -> None:
    await anyio.sleep(after_s / 20)
    with suppress(Refused):
        first = await master.change(ddl, f"once-{id(ddl)}-{after_s}")
        # A repeat gets the first answer, whatever has happened since.
        assert await master.change(ddl, f"once-{id(ddl)}-{after_s}") == first


async def judge(master: SimulatedMaster) -> None:
    """In a last process, which finishes what was left."""
    async with master.process():
        await settle(master)
        naive = NaiveTable()
        for change, _ in master.logs.changes():
            naive.apply(change)
        assert await stored(master.table) == naive
        assert list(await master.table.clashes()) == []
        ids = [
            it.id for it, _ in master.logs.changes() if isinstance(it, AddCollection | AddPartition)
        ]
        created = [it.id for it, _ in master.logs.changes() if isinstance(it, AddCollection)]
        assert len(created) == len(set(created)), "no id of a collection is used twice"
        partitions = set(ids) - set(created)
        assert len(partitions) == len(ids) - len(created), "no id of a partition is used twice"
        everywhere(master)


async def settle(master: SimulatedMaster) -> None:
    """Wait until every broadcast that was recorded has finished."""
    assert master.system is not None
    for _ in range(200):
        locks = master.system.find(LOCKS)
        if not await locks.ask(ListBroadcasts(), deadline_s=100.0):
            return
        await anyio.sleep(0.1)
    raise AssertionError("broadcasts are left")


def everywhere(master: SimulatedMaster) -> None:
    """Each change is on all of its vchannels, in the same order as on the control channel."""
    for id in _control(master):
        for name in master.logs.sent[id].vchannels:
            assert id in master.logs.first_copies(name), (id, name)
    for name in {it for sent in master.logs.sent.values() for it in sent.vchannels}:
        if is_control_channel(name):
            continue
        here = master.logs.first_copies(name)
        assert here == [id for id in _control(master) if id in here], name


def _control(master: SimulatedMaster) -> list[BroadcastId]:
    return master.logs.first_copies(CONTROL)


def numbers(count: int) -> Iterator[int]:
    return iter(range(1, count + 1))


def test_the_table_is_the_fold_of_the_control_channel_whatever_dies(
    request: pytest.FixtureRequest,
) -> None:
    struck = changes = 0
    for seed in numbers(request.config.getoption("--ddl-histories")):
        master = SimulatedMaster(Faults(), seed)

        async def main(master: SimulatedMaster = master, seed: int = seed) -> None:
            await play(master, random.Random(seed))
            await judge(master)

        try:
            run_seeded(seed, main)
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
        struck += master.faults.struck
        changes += len(master.logs.changes())
    # The faults strike, and the changes happen: else this would show nothing.
    assert struck > request.config.getoption("--ddl-histories")
    assert changes > 5 * request.config.getoption("--ddl-histories")
