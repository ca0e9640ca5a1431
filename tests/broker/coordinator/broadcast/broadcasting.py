"""A broadcaster over a store and logs that fail, or have it killed, at a step that a test names."""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from actors import (
    REST_FOR_ONE,
    ActorError,
    ChildSpec,
    MailboxSpec,
    Request,
    SupervisorSpec,
    System,
)
from actors.testing import VirtualClock
from broker.coordinator.broadcast.broadcast_records import BODY_PREFIX, BroadcastRecords
from broker.coordinator.broadcast.broadcast_task_parts import BroadcastTiming
from broker.coordinator.broadcast.messages import ListLocks, LockView, StartBroadcast
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.coordinator.broadcast.tree import BroadcastParts, broadcaster_tree
from broker.coordinator.cuts.cut_lock import CutLock
from broker.coordinator.cuts.messages import BROADCASTS, CUT_LOCK
from broker.core.cluster.broadcast_state import BroadcastPhase, BroadcastState
from broker.core.naming import is_control_channel, pchannel_of
from broker.meta.memory_store import MemoryMetaStore
from broker.model.broadcast import Broadcast, BroadcastCopy, Broadcasted, ResourceKey
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import Appended
from broker.ports.meta import MetaEntry, MetaError
from broker.ports.meta_writes import all_entries

ROOT = "/root/broadcaster"
LOCKS = f"{ROOT}/locks"
TASKS = f"{ROOT}/tasks"
PROCESS = "the process"
"""No path: all actors at once, with all that they were about to do."""
V = tuple(VChannelName(f"by-dev-dml_{number}_1v0") for number in range(3))
CALLED_TYPE = 5
ANSWER_S = 100.0
R = TypeVar("R")
Record = tuple[VChannelName, BroadcastId, Appended]


@dataclass
class Faults:
    """Counts the steps of all fakes; at each number in `at` it kills `path`, or fails the step.

    `path` "": the step fails; PROCESS: nothing that this process does has an effect any more, and
    `end` is called. `lost`: a write may fail after it took effect, which the port excludes.
    `counted`: only steps whose name begins so are counted, and none before `system` is set.
    `kinds`: what has been struck.
    """

    at: frozenset[int] = frozenset()
    after: bool = False
    path: str = ""
    lost: bool = False
    counted: str = ""
    steps: int = 0
    struck: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    system: System | None = None
    end: Callable[[], object] | None = None
    gone: bool = False

    async def before(self, name: str = "") -> int:
        """A step begins; its number, which `done` takes."""
        if self.gone:
            raise MetaError("the process is gone")
        if self.system is None or not name.startswith(self.counted):
            return 0
        self.steps += 1
        number = self.steps
        if number in self.at and not self.after:
            await self._strike(name)
        return number

    async def done(self, number: int, name: str = "") -> None:
        """The step took effect, and nobody knows yet."""
        if self.after and number in self.at:
            await self._strike(name)

    async def _strike(self, name: str) -> None:
        self.struck += 1
        self.kinds[name] += 1
        if not self.path:
            raise MetaError("the disk is full")
        if self.path == PROCESS:
            assert self.end is not None
            self.gone = True
            self.end()
            raise MetaError("the process is gone")
        assert self.system is not None
        try:
            self.system.kill(self._victim(self.system))
        except ActorError:
            return
        await anyio.sleep(0.001)  # it is cancelled here, if it was its own

    def _victim(self, system: System) -> str:
        if self.path != TASKS:
            return self.path
        tasks = [it.path for it in system.statistics() if it.path.startswith(f"{TASKS}/")]
        return tasks[0] if tasks else LOCKS


class FaultyStore(MemoryMetaStore):
    """Reads and writes are steps."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    async def get(self, key: str) -> MetaEntry | None:
        await self.faults.before("get")
        return await super().get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        await self.faults.before("list")
        return await super().list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        name = f"write {next(iter((*puts, *deletes)), '').partition('/')[0]}"
        number = await self.faults.before(name)
        await anyio.sleep(0.001)
        revision = await super().write(puts, deletes=deletes, expect=expect)
        # The port promises that a call which raises MetaError has changed nothing.
        if self.faults.path or self.faults.lost:
            await self.faults.done(number, name)
        return revision


class Logs:
    """Copies in lists. Each append is a step, and takes as long as the seed says."""

    def __init__(self, faults: Faults, seed: int = 1) -> None:
        self.faults = faults
        self.records: dict[PChannelName, list[Record]] = defaultdict(list)
        self.refusals: dict[VChannelName, list[Refusal]] = defaultdict(list)
        self.processed_up_to: dict[PChannelName, int] = {}
        self.tried_s: list[float] = []
        self._random = random.Random(seed)
        self._tick = 0

    async def append(self, copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
        self.tried_s.append(anyio.current_time())
        return [await self._one(copy) for copy in copies]

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        await anyio.sleep(0.001)
        return {it: TimeTick(self.processed_up_to.get(it, 0)) for it in pchannels}

    async def _one(self, copy: BroadcastCopy) -> Appended | Refusal:
        name = "append control" if is_control_channel(copy.vchannel) else "append"
        try:
            number = await self.faults.before(name)
        except MetaError as error:
            return Refusal(StreamingCode.UNKNOWN, str(error))
        await anyio.sleep(self._random.uniform(0.0, 0.01))
        if self.refusals[copy.vchannel]:
            return self.refusals[copy.vchannel].pop(0)
        landed = await self._land(copy)
        try:
            await self.faults.done(number, name)
        except MetaError as error:
            return Refusal(StreamingCode.UNKNOWN, str(error))
        return landed

    async def _land(self, copy: BroadcastCopy) -> Appended | Refusal:
        """Append at the next tick."""
        self._tick += 1
        return self._record(copy, TimeTick(self._tick))

    def _record(self, copy: BroadcastCopy, tick: TimeTick) -> Appended:
        records = self.records[pchannel_of(copy.vchannel)]
        landed = Appended(MessageId(len(records) + 1), tick, MessageId(1))
        records.append((copy.vchannel, copy.broadcast_id, landed))
        return landed

    def on(self, vchannel: VChannelName) -> list[BroadcastId]:
        """The broadcasts on a vchannel, in log order, copies that came again included."""
        return [id for name, id, _ in self.records[pchannel_of(vchannel)] if name == vchannel]

    def first_copies(self, vchannel: VChannelName) -> list[BroadcastId]:
        return list(dict.fromkeys(self.on(vchannel)))


@dataclass
class Cluster:
    """What a test holds: the tree, the fakes, and the callbacks that were made."""

    system: System
    store: FaultyStore
    logs: Logs
    called: list[BroadcastId] = field(default_factory=list)

    async def broadcast(self, asked: Broadcast) -> Broadcasted:
        """As the edge asks: again, with the same key, whenever the actor has died."""
        while True:
            try:
                found: Broadcasted = await self.system.find(LOCKS).ask(
                    StartBroadcast(asked), deadline_s=ANSWER_S
                )
            except ActorError:
                await anyio.sleep(0.01)
            except Refused as error:
                if error.refusal.code is not StreamingCode.INNER:
                    raise
                await anyio.sleep(0.01)
            else:
                return found

    async def ask(self, request: Request[R]) -> R:
        """Whoever is the Broadcaster now."""
        while True:
            try:
                found: R = await self.system.find(LOCKS).ask(request, deadline_s=ANSWER_S)
                return found
            except ActorError:
                await anyio.sleep(0.01)

    async def locks(self) -> tuple[LockView, ...]:
        return await self.ask(ListLocks())

    async def recorded(self, *states: BroadcastPhase) -> list[BroadcastState]:
        """What the store has, without being a step."""
        records = await BroadcastRecords(_Reader(self.store)).load()
        return [it.task for it in records if not states or it.task.state in states]

    async def bodies(self, *, restarted: bool) -> list[str]:
        """Keys of parts of bodies that are left, without being a step."""
        store = _Reader(self.store)
        if restarted:  # as the next Broadcaster does when it starts
            await BroadcastRecords(store).remove_bodies(await BroadcastRecords(store).load())
        return [key async for key, _ in all_entries(store, BODY_PREFIX)]


class _Reader(MemoryMetaStore):
    def __init__(self, store: FaultyStore) -> None:
        super().__init__()
        self._entries = store._entries


async def never(_: int) -> None:
    """A callback that works."""


def cluster_parts(
    store: FaultyStore,
    logs: Logs,
    *,
    limits: BroadcasterLimits | None = None,
    timing: BroadcastTiming | None = None,
    node_acks: bool = True,
    fail: Callable[[int], Awaitable[None]] = never,
) -> tuple[System, Cluster]:
    """A system to be entered; the callback of type 5 remembers its broadcasts.

    `fail` is called in the callback with the number of the call, and may raise or wait.
    """
    called: list[BroadcastId] = []

    async def remember(_: Broadcast, outcome: Broadcasted) -> None:
        called.append(outcome.id)
        await anyio.sleep(0.001)
        await fail(len(called))

    parts = BroadcastParts(
        copies=logs,
        callbacks={CALLED_TYPE: remember},
        node_acks=node_acks,
        timing=timing or BroadcastTiming(),
        limits=limits or BroadcasterLimits(),
    )
    cut_lock = ChildSpec(CUT_LOCK, lambda: CutLock((BROADCASTS,)), MailboxSpec(bound=1024))
    children = (cut_lock, broadcaster_tree(store, parts, "/root"))
    spec = SupervisorSpec("root", REST_FOR_ONE, children)
    system = System(spec, clock=VirtualClock(), random=random.Random(1))
    return system, Cluster(system, store, logs, called)


def broadcast(
    key: str,
    *keys: ResourceKey,
    vchannels: tuple[VChannelName, ...] = V,
    sync_up: bool = False,
    kind: int = CALLED_TYPE,
) -> Broadcast:
    """One whose request key is `key`."""
    return Broadcast(kind, vchannels, keys, b"body", 4, key, f"content of {key}", sync_up)
