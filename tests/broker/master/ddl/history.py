"""What the callers of changes were told, and what must be true of the records and logs then."""

from dataclasses import dataclass, field

import anyio

from broker.coordinator.broadcast.messages import ListBroadcasts, ListLocks
from broker.core.naming import is_control_channel, pchannel_of
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.failure import Refused
from broker.model.ids import BroadcastId, CollectionId
from broker.model.master.ddl import PlannedRequest
from broker.model.master.table_change import AddCollection, AddDatabase, AddPartition, PutIndex
from tests.broker.coordinator.broadcast.broadcasting import LOCKS
from tests.broker.master.ddl.naive_table import NaiveTable, stored
from tests.broker.master.simulated_master import CONTROL, MESSAGES, SimulatedMaster

Asked = PlannedRequest | Broadcast
GIVEN = "given"
"""Request keys that begin so are of clients of Milvus, which choose their ids."""


@dataclass
class Told:
    """By request key. `open`: those whose caller was gone before the answer.

    `ranges`: ids, and `ticks`: ticks that others were given, as first and count.
    """

    answers: dict[str, tuple[Asked, Broadcasted]] = field(default_factory=dict)
    refused: dict[str, Refused] = field(default_factory=dict)
    open: dict[str, Asked] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ticks: list[tuple[int, int]] = field(default_factory=list)

    async def ask(self, master: SimulatedMaster, request: Asked) -> None:
        """Until the answer; then again, which gives the same one."""
        key = request.request_key
        self.open[key] = request
        try:
            answer = await master.asked(request)
        except Refused as error:
            self.refused[key] = error
        else:
            assert self.answers.setdefault(key, (request, answer))[1] == answer
            assert await master.asked(request) == answer, "a repeat gets the first answer"
        del self.open[key]

    async def take_ids(self, master: SimulatedMaster, count: int) -> None:
        """Beside the changes, as AllocID does; what fails takes none."""
        try:
            taken = await master.ids.take(count)
        except Refused:
            return
        self.ranges.append((taken.first, taken.count))

    async def take_ticks(self, master: SimulatedMaster, count: int) -> None:
        """Beside the copies, as AllocTimestamp does."""
        assert master.logs.ticks is not None
        try:
            taken = await master.logs.ticks.reserve(count)
        except Refused:
            return
        self.ticks.append((taken.first, taken.count))


async def judge(master: SimulatedMaster, told: Told, before: NaiveTable) -> None:
    """In two processes: the first finishes what was left, the second remembers the same.

    `before`: the table before the first change.
    """
    async with master.process():
        await settle(master)
        for request, answer in told.answers.values():
            assert await master.asked(request) == answer
        found = await stored(master.records)
    async with master.process():
        for request, answer in told.answers.values():
            assert await master.asked(request) == answer, "a restart does not forget an answer"
        before.apply_all(change for change, _ in master.logs.changes())
        clashes, before.clashes = before.clashes, set()
        assert found == before, "the table is the fold of the control channel"
        assert await stored(master.records) == before
        assert len(await master.table.clashes()) == len(clashes)
        await settle(master)
    what_was_told_is_there(master, told)
    nothing_is_given_twice(master, told)
    timestamps_grow(master)
    everywhere(master)


async def settle(master: SimulatedMaster) -> None:
    """Wait until every broadcast that was recorded has finished: then nothing holds a name."""
    assert master.system is not None
    for _ in range(200):
        locks = master.system.find(LOCKS)
        if not await locks.ask(ListBroadcasts(), deadline_s=100.0):
            assert await locks.ask(ListLocks(), deadline_s=100.0) == ()
            return
        await anyio.sleep(0.1)
    raise AssertionError("broadcasts are left")


def what_was_told_is_there(master: SimulatedMaster, told: Told) -> None:
    """Each answered change once, no refused one, and of the others at most one."""
    found: dict[str, set[BroadcastId]] = {}
    for id in master.logs.first_copies(CONTROL):
        found.setdefault(master.logs.sent[id].request_key, set()).add(id)
    for key, (_, answer) in told.answers.items():
        assert found[key] == {answer.id}, key
        for name, landed in answer.results.items():
            assert (name, answer.id, landed) in master.logs.records[pchannel_of(name)]
    assert not found.keys() & told.refused.keys()
    for key, ids in found.items():
        assert key in told.answers or key in told.open, "nobody asked for it"
        assert len(ids) == 1, key


def nothing_is_given_twice(master: SimulatedMaster, told: Told) -> None:
    """No id, whoever has it, and no tick, to copies or to callers."""
    collections, ids = list[CollectionId](), list[int]()
    indexes = set[int]()
    for id in master.logs.first_copies(CONTROL):
        sent = master.logs.sent[id]
        if sent.request_key.startswith(GIVEN):
            continue
        match MESSAGES.decode(sent.type, sent.body, sent.vchannels):
            case AddCollection() as it:
                collections.append(it.id)
                ids += [partition for _, partition in it.partitions]
            case AddPartition() | AddDatabase() as it:
                ids.append(it.id)
            case PutIndex(index=index) if index.id not in indexes and index.id > 1000:
                indexes.add(index.id)  # the same parameters again are the same index
                ids.append(index.id)
    ids += [it for first, count in told.ranges for it in range(first, first + count)]
    assert len(ids) == len(set(ids)), "no id is given twice"
    assert len(collections) == len(set(collections)), "no id of a collection is given twice"
    ticks = [int(it.tick) for records in master.logs.records.values() for _, _, it in records]
    ticks += [it for first, count in told.ticks for it in range(first, first + count)]
    assert len(ticks) == len(set(ticks)), "no tick is given twice"


def timestamps_grow(master: SimulatedMaster) -> None:
    """Along the control channel, of each name that a change holds for itself."""
    newest: dict[object, int] = {}
    for id in master.logs.first_copies(CONTROL):
        sent = master.logs.sent[id]
        for key in sent.keys:
            name = key.domain, key.key
            if not key.shared and sent.timestamp:
                assert newest.get(name, 0) <= sent.timestamp, sent
                newest[name] = sent.timestamp


def everywhere(master: SimulatedMaster) -> None:
    """Each change is on all of its vchannels, in the same order as on the control channel."""
    control = master.logs.first_copies(CONTROL)
    for id in control:
        for name in master.logs.sent[id].vchannels:
            assert id in master.logs.first_copies(name), (id, name)
    for name in {it for sent in master.logs.sent.values() for it in sent.vchannels}:
        if not is_control_channel(name):
            here = master.logs.first_copies(name)
            assert here == [id for id in control if id in here], name
