"""Who appends during a storm: plain messages, batches, transactions, broadcasts; and who cuts.

Each worker does one thing after the other and pauses a moment. Next: tests/chaos/storm/recorder.py
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, OutcomeUnknown, ResourceKey, TidemarkError, Txn
from tests.chaos.storm.history import CutTaken, Operation, Outcome, Place
from tests.chaos.storm.recorder import NeverEnded, Recorder, outcome_of

APPEND_S = 10.0
TXN_STEP_S = 8.0
TXN_KEEPALIVE_S = 20.0
BROADCAST_S = 20.0
CUT_S = 10.0
PAUSE_S = 0.03
KEYS = 5
BODIES_MAX = 5
BATCH_MAX = 20
TARGETS_MAX = 4

FAILURES = (TidemarkError, NeverEnded)


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation that began."""

    sort: str
    began_s: float
    targets: tuple[str, ...]
    payloads: tuple[bytes, ...]
    keys: tuple[ResourceKey, ...] = ()


@dataclass(slots=True)
class Workload:
    """`enough` lets every worker end after what it is at."""

    log: Client
    recorder: Recorder
    vchannels: tuple[str, ...]
    seed: int
    enough: bool = False

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for number in range(3):
            tasks.start_soon(self._again, "append", number, self._append)
            tasks.start_soon(self._again, "txn", number, self._txn)
            tasks.start_soon(self._again, "broadcast", number, self._broadcast)
        for number in range(2):
            tasks.start_soon(self._again, "batch", number, self._batch)
        tasks.start_soon(self._again, "cut", 0, self._cut)

    async def _again(
        self, sort: str, worker: int, work: Callable[[random.Random, str], Awaitable[None]]
    ) -> None:
        chosen, number = random.Random(f"{self.seed} {sort} {worker}"), 0
        while not self.enough:
            number += 1
            await work(chosen, f"{sort}/{worker}/{number}")
            await anyio.sleep(PAUSE_S * chosen.uniform(0.5, 4.0))

    async def append(self, vchannel: str, name: str, deadline_s: float = APPEND_S) -> bool:
        """One plain message; whether it was acknowledged."""
        payload = name.encode()
        asked = Asked("append", anyio.current_time(), (vchannel,), (payload,))
        try:
            landed = await self.recorder.call(
                "append",
                deadline_s,
                lambda: self.log.append(vchannel, payload, deadline_s=deadline_s),
            )
        except FAILURES as error:
            self._failed(asked, error)
            return False
        self._record(asked, places=(Place(vchannel, landed.id, landed.tick),))
        return True

    async def _append(self, chosen: random.Random, name: str) -> None:
        await self.append(chosen.choice(self.vchannels), name)

    async def _batch(self, chosen: random.Random, name: str) -> None:
        vchannel = chosen.choice(self.vchannels)
        payloads = tuple(f"{name}/{it}".encode() for it in range(chosen.randint(1, BATCH_MAX)))
        asked = Asked("batch", anyio.current_time(), (vchannel,), payloads)
        try:
            it = await self.recorder.call(
                "batch",
                APPEND_S,
                lambda: self.log.append_batch(vchannel, payloads, deadline_s=APPEND_S),
            )
        except FAILURES as error:
            self._failed(asked, error)
            return
        places = tuple(Place(vchannel, it.id + n, it.tick + n) for n in range(len(payloads)))
        self._record(asked, places=places)

    async def _txn(self, chosen: random.Random, name: str) -> None:
        vchannel = chosen.choice(self.vchannels)
        payloads = tuple(f"{name}/{it}".encode() for it in range(chosen.randint(1, BODIES_MAX)))
        asked = Asked("txn", anyio.current_time(), (vchannel,), payloads)
        txn = self.log.txn(vchannel, keepalive_s=TXN_KEEPALIVE_S, deadline_s=TXN_STEP_S)
        ids = list[int]()

        async def step(sort: str, work: Callable[[], Awaitable[object]]) -> None:
            await self.recorder.call(f"txn {sort}", TXN_STEP_S, work)

        try:
            await step("begin", txn.begin)
            for payload in payloads:
                await step("append", lambda payload=payload: _body(txn, payload, ids))  # type: ignore[misc]
            if chosen.random() < 0.2:
                await step("rollback", txn.rollback)
                self._record(asked, Outcome.ABSENT)
                return
            landed = await self.recorder.call("txn commit", TXN_STEP_S, txn.commit)
        except FAILURES as error:
            self._failed(asked, error, txn)
            return
        end = Place(vchannel, landed.id, landed.tick)
        places = tuple(Place(vchannel, id_, landed.tick) for id_ in ids)
        self._record(asked, places=places, end=end)

    async def _broadcast(self, chosen: random.Random, name: str) -> None:
        targets = tuple(chosen.sample(self.vchannels, chosen.randint(2, TARGETS_MAX)))
        keys = tuple(
            ResourceKey.collection(f"c{it}", shared=chosen.random() < 0.3)
            for it in chosen.sample(range(KEYS), chosen.randint(1, 3))
        )
        payload = name.encode()
        asked = Asked("broadcast", anyio.current_time(), targets, (payload,), keys)

        async def ask() -> tuple[Place, ...]:
            done = await self.log.broadcast.append(
                targets, payload, keys=keys, idempotency_key=name, deadline_s=BROADCAST_S
            )
            return tuple(Place(it, at.id, at.tick) for it, at in sorted(done.results.items()))

        try:
            try:
                places = await self.recorder.call("broadcast", BROADCAST_S, ask)
            except OutcomeUnknown:  # the same key: the same broadcast
                places = await self.recorder.call("broadcast again", BROADCAST_S, ask)
        except FAILURES as error:
            self._failed(asked, error)
            return
        self._record(asked, places=places)

    async def _cut(self, chosen: random.Random, name: str) -> None:
        vchannels = tuple(chosen.sample(self.vchannels, chosen.randint(1, len(self.vchannels))))
        began_s = anyio.current_time()
        try:
            cut = await self.recorder.call("cut", CUT_S, lambda: self.log.cut(vchannels))
        except FAILURES:
            return
        taken = CutTaken(began_s, anyio.current_time(), vchannels, cut.tick)
        self.recorder.history.cuts.append(taken)
        await anyio.sleep(10 * PAUSE_S)

    def _failed(
        self, asked: Asked, error: TidemarkError | NeverEnded, begun: Txn | None = None
    ) -> None:
        """A transaction whose commit was never asked for is absent, whatever the error was."""
        outcome = outcome_of(error)
        if begun is not None and (begun.hopeless or not begun.committing):
            outcome = Outcome.ABSENT
        self._record(asked, outcome, error=f"{type(error).__name__}: {error}")

    def _record(
        self,
        asked: Asked,
        outcome: Outcome = Outcome.ACKNOWLEDGED,
        *,
        places: tuple[Place, ...] = (),
        end: Place | None = None,
        error: str = "",
    ) -> None:
        done = Operation(
            asked.sort,
            asked.began_s,
            anyio.current_time(),
            outcome,
            asked.targets,
            asked.payloads,
            places,
            asked.keys,
            end,
            error,
        )
        self.recorder.history.operations.append(done)


async def _body(txn: Txn, payload: bytes, ids: list[int]) -> None:
    ids.append((await txn.append(payload, deadline_s=TXN_STEP_S)).id)
