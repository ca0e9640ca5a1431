"""The master's changes over a store and logs that fail, or have it killed, at a numbered step."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import anyio

from actors import (
    ONE_FOR_ONE,
    REST_FOR_ONE,
    ActorError,
    ChildSpec,
    MailboxSpec,
    Ref,
    SupervisorSpec,
    System,
)
from actors.testing import VirtualClock
from broker.codec.stored_ddl import StoredDdl
from broker.coordinator.broadcast.messages import PlanBroadcast, StartBroadcast
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.coordinator.broadcast.tree import BroadcastParts, broadcaster_tree
from broker.coordinator.cuts.cut_lock import CutLock
from broker.coordinator.cuts.messages import BROADCASTS, CUT_LOCK
from broker.coordinator.time.oracle import Oracle, OracleTicks
from broker.coordinator.time.tick_window import TickWindow
from broker.core.master.ddl_answer import DdlAnswer, read_answer
from broker.core.master.ddl_keys import ddl_keys
from broker.core.naming import control_channel, pchannel_names, pchannel_of
from broker.master.ddl.ddl_callbacks import ddl_callbacks
from broker.master.ddl.ddl_planner import DdlPlanner
from broker.master.ids.id_allocator import AskedIds, IdAllocator
from broker.master.table.meta_table import MetaTable
from broker.master.table.stored_table import StoredTable
from broker.meta.memory_store import MemoryMetaStore
from broker.model.broadcast import Broadcast, BroadcastCopy, Broadcasted
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import BroadcastId, TimeTick, VChannelName
from broker.model.master.ddl import Ddl, GivenBroadcast, PlannedRequest
from broker.model.master.table_change import AddCollection, TableChange
from broker.model.message import Appended
from broker.ports.callbacks import Callback, EndRecord, EndsBroadcast
from broker.ports.ticks import TickSource
from tests.broker.coordinator.broadcast.broadcasting import (
    LOCKS,
    PROCESS,
    Faults,
    FaultyStore,
    Logs,
)

PCHANNELS = pchannel_names("by-dev", 4)
CONTROL = control_channel(PCHANNELS[0])
TABLE = "/root/master/table"
IDS = "/root/master/ids"
WINDOW = "/root/time/window"
ORACLE = "/root/time/oracle"
MESSAGES = StoredDdl()
ANSWER_S = 100.0


class DdlLogs(Logs):
    """Remembers what was broadcast, so that a test can fold a channel. Its ticks are the oracle's.

    `ticks` is set by each process.
    """

    def __init__(self, faults: Faults, seed: int = 1) -> None:
        super().__init__(faults, seed)
        self.sent: dict[BroadcastId, Broadcast] = {}
        self.ticks: TickSource | None = None
        self._in_turn = anyio.Lock()

    async def append(self, copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
        self.sent |= {copy.broadcast_id: copy.broadcast for copy in copies}
        return await super().append(copies)

    async def _land(self, copy: BroadcastCopy) -> Appended | Refusal:
        assert self.ticks is not None
        async with self._in_turn:  # ticks of a log grow
            try:
                tick = (await self.ticks.reserve(1)).first
            except Refused as error:
                return error.refusal
            return self._record(copy, tick)

    def changes(self) -> list[tuple[TableChange, TimeTick]]:
        """The changes on the control channel, each once, with the tick of its first copy."""
        found: dict[BroadcastId, tuple[TableChange, TimeTick]] = {}
        for name, id, landed in self.records[pchannel_of(CONTROL)]:
            if name == CONTROL and id not in found:
                sent = self.sent[id]
                change = MESSAGES.decode(sent.type, sent.body, sent.vchannels)
                assert change is not None, sent
                found[id] = change, landed.tick
        return list(found.values())


@dataclass
class SimulatedMaster:
    """The actors of changes over one store and one set of logs, which outlive them."""

    faults: Faults = field(default_factory=Faults)
    seed: int = 1
    limits: BroadcasterLimits = field(default_factory=BroadcasterLimits)
    others: tuple[ChildSpec, ...] = ()
    """Actors of the master beside those of changes."""

    def __post_init__(self) -> None:
        self.store = FaultyStore(self.faults)
        self.logs = DdlLogs(self.faults, self.seed)
        self.system: System | None = None
        self.keys = 0

    @property
    def records(self) -> MemoryMetaStore:
        """The same store; using it is no step."""
        plain = MemoryMetaStore()
        plain._entries = self.store._entries
        return plain

    @property
    def table(self) -> StoredTable:
        """Reads that are no steps."""
        return StoredTable(self.records)

    def process(self) -> System:
        """The actors, to be entered; a new process after the one before has ended."""

        def find(path: str) -> Ref[Any]:
            return system.find(path)

        def planner() -> DdlPlanner:
            ids = AskedIds(find, IDS)
            return DdlPlanner(self.store, PCHANNELS, CONTROL, MESSAGES, ids)

        broadcast = BroadcastParts(
            self.logs,
            self._callbacks(find),
            limits=self.limits,
            planner=planner,
        )
        many = MailboxSpec(bound=4096, batch_max=256)
        master = SupervisorSpec(
            "master",
            ONE_FOR_ONE,
            (
                ChildSpec("ids", lambda: IdAllocator(self.store), many, patient=True),
                ChildSpec("table", lambda: MetaTable(self.store), many, patient=True),
                *self.others,
            ),
            restarts_max=1000,
        )
        time = SupervisorSpec(
            "time",
            REST_FOR_ONE,
            (
                ChildSpec("window", lambda: TickWindow(self.store), patient=True),
                ChildSpec("oracle", lambda: Oracle(WINDOW), many, patient=True),
            ),
            restarts_max=1000,
        )
        cut_lock = ChildSpec(CUT_LOCK, lambda: CutLock((BROADCASTS,)), MailboxSpec(bound=1024))
        children = (time, master, cut_lock, broadcaster_tree(self.store, broadcast, "/root"))
        spec = SupervisorSpec("root", REST_FOR_ONE, children, restarts_max=1000)
        system = System(spec, clock=VirtualClock(), random=random.Random(self.seed))
        self.system = system
        self.logs.ticks = OracleTicks(find, ORACLE)
        self.ids = AskedIds(find, IDS)
        return system

    async def live(self, work: Callable[[], Awaitable[None]]) -> bool:
        """One process, until the work is done; False: the faults have killed it before that."""
        faults = self.faults
        with anyio.CancelScope() as scope:
            faults.end = scope.cancel
            process = self.process()
            if faults.path == PROCESS:
                faults.system = process  # its start has steps, too
            async with process as system:
                faults.system = system
                await work()
                faults.system = None
        faults.system, faults.end, faults.gone = None, None, False
        return not scope.cancelled_caught

    def _callbacks(self, find: Callable[[str], Ref[Any]]) -> dict[int, Callback]:
        """The master's; each is a step."""
        found = ddl_callbacks({}, MESSAGES, find, TABLE)
        return {kind: _Stepped(callback, self.faults) for kind, callback in found.items()}

    def request(self, ddl: Ddl, key: str = "", timestamp: int = 0) -> PlannedRequest:
        """A request under its own key, or under this one."""
        self.keys += 1
        named = key or f"request-{self.keys}"
        return PlannedRequest(ddl, ddl_keys(ddl), named, f"content {ddl}", timestamp)

    async def once(self, ddl: Ddl, key: str = "", timestamp: int = 0) -> Broadcasted:
        """One call, with whatever it raises."""
        assert self.system is not None
        request = self.request(ddl, key, timestamp)
        found: Broadcasted = await self.system.find(LOCKS).ask(
            PlanBroadcast(request), deadline_s=ANSWER_S
        )
        return found

    async def change(self, ddl: Ddl, key: str = "", timestamp: int = 0) -> DdlAnswer:
        """As the edge asks: again under the same key when an actor died, or the store failed."""
        return read_answer((await self.asked(self.request(ddl, key, timestamp))).answer)

    async def asked(self, request: PlannedRequest | Broadcast) -> Broadcasted:
        """As the edge asks; raises the refusals that a retry does not change."""
        message: PlanBroadcast | StartBroadcast = (
            PlanBroadcast(request)
            if isinstance(request, PlannedRequest)
            else StartBroadcast(request)
        )
        while True:
            try:
                assert self.system is not None
                done: Broadcasted = await self.system.find(LOCKS).ask(message, deadline_s=ANSWER_S)
            except ActorError:
                await anyio.sleep(0.01)
            except Refused as error:
                if error.refusal.code is not StreamingCode.INNER:
                    raise
                await anyio.sleep(0.01)
            else:
                return done


class _Stepped(EndsBroadcast):
    """A callback of the master, as a step; with the end of its broadcast, or without."""

    def __init__(self, callback: Callback, faults: Faults) -> None:
        assert isinstance(callback, EndsBroadcast)
        self._callback = callback
        self._faults = faults

    async def __call__(self, broadcast: Broadcast, outcome: Broadcasted, /) -> None:
        number = await self._faults.before("callback")
        await self._callback(broadcast, outcome)
        await self._faults.done(number, "callback")

    def ends(self, broadcast: Broadcast, end: EndRecord, /) -> bool:
        return self._callback.ends(broadcast, end)

    async def apply_with_end(
        self, broadcast: Broadcast, outcome: Broadcasted, end: EndRecord, /
    ) -> int | None:
        number = await self._faults.before("callback")
        revision = await self._callback.apply_with_end(broadcast, outcome, end)
        await self._faults.done(number, "callback")
        return revision


def given_request(
    change: TableChange, key: str, vchannels: Sequence[VChannelName] = ()
) -> PlannedRequest:
    """As the edge asks for a broadcast of a client of Milvus, to these vchannels as well."""
    encoded = MESSAGES.encode(change)
    places = (CONTROL, *(change.vchannels if isinstance(change, AddCollection) else vchannels))
    content = sha256(repr(change).encode()).hexdigest()
    sent = Broadcast(encoded.type, places, (), encoded.body, encoded.size, key, content)
    keys = ddl_keys(GivenBroadcast(sent, change))
    ddl = GivenBroadcast(replace(sent, keys=keys), change)
    return PlannedRequest(ddl, keys, key, sent.fingerprint)
