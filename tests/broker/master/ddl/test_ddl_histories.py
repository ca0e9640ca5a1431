"""Random changes with deaths at any step: the table is the fold of the control channel.

`--ddl-histories N` plays more of them.
"""

import random
from collections import Counter
from dataclasses import replace

import anyio
import pytest

from actors.testing import run_seeded
from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.core.naming import vchannel_name
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.model.master.ddl import PlannedRequest
from tests.broker.coordinator.broadcast.broadcasting import LOCKS, PROCESS, TASKS, Faults
from tests.broker.master.ddl.history import GIVEN, Asked, Told, judge
from tests.broker.master.ddl.naive_table import NaiveCollection, NaiveTable
from tests.broker.master.ddl.random_changes import (
    OLD,
    ROWS,
    some_change,
    some_clash,
    some_given_change,
)
from tests.broker.master.simulated_master import (
    IDS,
    ORACLE,
    PCHANNELS,
    TABLE,
    WINDOW,
    SimulatedMaster,
)

VICTIMS = (LOCKS, TASKS, TABLE, IDS, WINDOW, ORACLE, PROCESS, PROCESS, "", "")
CHANGES = 24
PROCESSES = 3
STEPS_HIT = (
    "append",
    "append control",
    "callback",
    "get",
    "list",
    "write broadcast",
    "write collection",
    "write ids",
)
"""What must have been struck in the course of all histories."""


class History:
    """One of them, from the records of an earlier release to the judgement."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.master = SimulatedMaster(Faults(), seed)
        self.told = Told()
        self._asked = 0

    async def play(self) -> None:
        before = await self._earlier_release()
        for _ in range(PROCESSES):
            self._choose_faults()
            await self.master.live(self._changes)
        self.master.faults.at = frozenset()
        await judge(self.master, self.told, before)

    async def _earlier_release(self) -> NaiveTable:
        """Collections that are not announced, one with a schema."""
        records, table = CollectionRecords(self.master.records), NaiveTable()
        for at, name in enumerate(OLD):
            id = CollectionId(100 + at)
            vchannels = (vchannel_name(PCHANNELS[at], id, 0),)
            old = Collection(name, id, vchannels, 1, ROWS[0] if at else None)
            await records.create(old, await records.next_id(), await records.loads())
            table.collections[id] = NaiveCollection.of(old)
        return table

    def _choose_faults(self) -> None:
        """In each process some actor dies, the process does, or the store fails; anywhere."""
        faults, chance = self.master.faults, self._chance
        faults.at = frozenset(chance.sample(range(1, 120), 6))
        faults.after, faults.path = chance.random() < 0.5, chance.choice(VICTIMS)
        faults.lost, faults.steps = chance.random() < 0.5, 0

    async def _changes(self) -> None:
        chance, told = self._chance, self.told
        left = list(told.open.values())
        async with anyio.create_task_group() as group:
            for request in left:  # their callers come back
                group.start_soon(self._ask, request, chance.random())
            for _ in range(CHANGES // PROCESSES):
                group.start_soon(self._ask, self._request(), chance.random())
            for _ in range(2):
                group.start_soon(told.take_ids, self.master, chance.randint(1, 5))
                group.start_soon(told.take_ticks, self.master, chance.randint(1, 5))
        # Sometimes the process ends with work left: callers leave, tasks stay.
        if chance.random() < 0.5:
            with anyio.move_on_after(chance.uniform(0.0, 0.02)):
                await told.ask(self.master, self._request())

    def _request(self) -> Asked:
        self._asked += 1
        chance, number = self._chance, self._asked
        sort = chance.random()
        if sort < 0.2:
            return some_given_change(chance, self.master, f"{GIVEN} {number}")
        if sort < 0.25:
            return some_clash(chance, f"{GIVEN} {number}")
        timestamp = number + chance.randint(0, 5) if chance.random() < 0.3 else 0
        return self.master.request(some_change(chance), f"ours {number}", timestamp)

    async def _ask(self, request: Asked, after_s: float) -> None:
        await anyio.sleep(after_s / 20)
        await self.told.ask(self.master, request)
        if isinstance(request, PlannedRequest) and request.request_key in self.told.answers:
            other = replace(request, fingerprint="other")
            with pytest.raises(Refused, match="was used with other content"):
                await self.master.asked(other)


def numbers(count: int) -> range:
    return range(1, count + 1)


def test_the_table_is_the_fold_of_the_control_channel_whatever_dies(
    request: pytest.FixtureRequest,
) -> None:
    count: int = request.config.getoption("--ddl-histories")
    struck, refused, changes, clashes = Counter[str](), Counter[str](), 0, 0
    for seed in numbers(count):
        history = History(seed)
        try:
            run_seeded(seed, history.play)
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
        struck += history.master.faults.kinds
        refused.update(it.refusal.cause for it in history.told.refused.values())
        codes = {it.refusal.code for it in history.told.refused.values()}
        assert StreamingCode.INNER not in codes
        changes += len(history.master.logs.changes())
        clashes += sum(it.startswith("ddl-clash/") for it in history.master.store._entries)
    # The faults strike, and the changes happen and clash: else this would show nothing.
    assert struck.keys() >= set(STEPS_HIT), struck
    assert struck.total() > count
    assert changes > 5 * count
    assert clashes > count // 5
    assert any("is older than" in it for it in refused)
