"""Who appends during a storm: messages, batches, rows, transactions, broadcasts; and who cuts.

Each worker does one thing after the other and pauses a moment; but on each vchannel one floods,
which does not pause for seconds on end. A vchannel of a collection with a schema gets rows only.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio
from anyio.abc import TaskGroup

from broker.client import (
    Appended,
    AppendedBatch,
    Client,
    OutcomeUnknown,
    ResourceKey,
    Stage,
    TidemarkError,
    TransactionExpired,
    Txn,
)
from broker.client.errors import BadTarget, NoSuchVChannel, SchemaVersionMismatch
from broker.client.txn.stage import StagedPart
from tests.chaos.storm.counted import Counted, seal_now_and_then
from tests.chaos.storm.history import OF_BROADCASTS, CutTaken, Operation, Outcome, Place
from tests.chaos.storm.message_keys import key_of
from tests.chaos.storm.recorder import NeverEnded, Recorder, outcome_of
from tests.chaos.storm.rows import rows_of

APPEND_S = 10.0
TXN_STEP_S = 8.0
TXN_KEEPALIVE_S = 20.0
BROADCAST_S = 20.0
COMMIT_S = 20.0
CUT_S = 10.0
PAUSE_S = 0.03
KEYS = 3
BODIES_MAX = 5
BATCH_MAX = 20
TARGETS_MAX = 4
BROADCASTERS = 6
"""So many that some wait for the keys of others at most times."""
FLOOD_S, QUIET_S = 4.0, 2.0
PLACED = {"append", "flood", "batch", "rows", "txn", "broadcast"}
"""Sorts of operations whose answer tells where things are."""

FAILURES = (TidemarkError, NeverEnded)
WRONG_CALLS = (BadTarget, NoSuchVChannel, SchemaVersionMismatch)
"""No fault causes these. They end the storm, or it would judge a log with hardly any appends."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation that began."""

    sort: str
    began_s: float
    targets: tuple[str, ...]
    payloads: tuple[bytes, ...]
    keys: tuple[ResourceKey, ...] = ()
    batch: str = ""
    partition: str = ""


@dataclass(slots=True)
class Workload:
    """`enough` lets every worker end after what it is at.

    `of_rows`: those of the vchannels that take rows. `flooding`: another client, for floods.
    `counted`: the collection whose rows name partitions and are placed in segments.
    """

    log: Client
    flooding: Client
    recorder: Recorder
    vchannels: tuple[str, ...]
    of_rows: tuple[str, ...]
    counted: Counted
    seed: int
    enough: bool = False

    @property
    def plain(self) -> tuple[str, ...]:
        """The vchannels that take messages."""
        return tuple(it for it in self.vchannels if it not in self.of_rows)

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for number in range(3):
            tasks.start_soon(self._again, "append", number, self._append)
            tasks.start_soon(self._again, "txn", number, self._txn)
        for number in range(BROADCASTERS):
            tasks.start_soon(self._again, "broadcast", number, self._broadcast)
        for number in range(2):
            tasks.start_soon(self._again, "batch", number, self._batch)
        tasks.start_soon(self._again, "rows", 0, self._rows)
        tasks.start_soon(self._again, "staged", 0, self._staged)
        tasks.start_soon(self._again, "cut", 0, self._cut)
        tasks.start_soon(self._again, "seal", 0, self._seal)
        for number, vchannel in enumerate(self.vchannels):
            tasks.start_soon(self._flood, number, vchannel)

    async def _again(
        self, sort: str, worker: int, work: Callable[[random.Random, str], Awaitable[None]]
    ) -> None:
        chosen, number = random.Random(f"{self.seed} {sort} {worker}"), 0
        while not self.enough:
            number += 1
            await work(chosen, f"{sort}/{worker}/{number}")
            await anyio.sleep(PAUSE_S * chosen.uniform(0.5, 4.0))

    async def _flood(self, worker: int, vchannel: str) -> None:
        """With an append in flight all the time, for a while; then quiet, for a while."""
        chosen, number = random.Random(f"{self.seed} flood {worker}"), 0
        while not self.enough:
            until_s = anyio.current_time() + chosen.uniform(0.5, FLOOD_S)
            while anyio.current_time() < until_s and not self.enough:
                number += 1
                name = f"flood/{worker}/{number}"
                if vchannel in self.of_rows:
                    await self.rows(vchannel, [name], flooding=True)
                else:
                    await self.append(vchannel, name, flooding=True)
            await anyio.sleep(chosen.uniform(0.0, QUIET_S))

    async def append(
        self, vchannel: str, name: str, deadline_s: float = APPEND_S, *, flooding: bool = False
    ) -> bool:
        """One plain message; whether it was acknowledged."""
        log, sort = (self.flooding, "flood") if flooding else (self.log, "append")
        payload = name.encode()
        asked = self._asked(sort, vchannel, (payload,), name)
        partition = self.counted.chosen(vchannel, name)

        async def append() -> Appended:
            return await log.append(
                vchannel, payload, key=key_of(name), partition=partition, deadline_s=deadline_s
            )

        try:
            landed = await self.recorder.call(sort, deadline_s, append)
        except FAILURES as error:
            self._failed(asked, error)
            return False
        self._record(asked, places=(Place(vchannel, landed.id, landed.tick),))
        return True

    async def _append(self, chosen: random.Random, name: str) -> None:
        await self.append(chosen.choice(self.plain), name)

    async def _batch(self, chosen: random.Random, name: str) -> None:
        vchannel = chosen.choice(self.plain)
        payloads = tuple(f"{name}/{it}".encode() for it in range(chosen.randint(1, BATCH_MAX)))
        asked = self._asked("batch", vchannel, payloads, name)
        partition = self.counted.chosen(vchannel, name)

        async def append() -> AppendedBatch:
            return await self.log.append_batch(
                vchannel,
                payloads,
                keys=[key_of(it.decode()) for it in payloads],
                partition=partition,
                deadline_s=APPEND_S,
            )

        try:
            it = await self.recorder.call("batch", APPEND_S, append)
        except FAILURES as error:
            self._failed(asked, error)
            return
        places = tuple(Place(vchannel, it.id + n, it.tick + n) for n in range(len(payloads)))
        self._record(asked, places=places)

    async def _rows(self, chosen: random.Random, name: str) -> None:
        vchannel = chosen.choice(self.of_rows)
        await self.rows(vchannel, [f"{name}/{it}" for it in range(chosen.randint(1, BATCH_MAX))])

    async def rows(
        self,
        vchannel: str,
        names: list[str],
        deadline_s: float = APPEND_S,
        *,
        flooding: bool = False,
    ) -> bool:
        """Rows in one batch, whose names are their payloads; whether it was acknowledged."""
        log = self.flooding if flooding else self.log
        asked = Asked("rows", anyio.current_time(), (vchannel,), tuple(it.encode() for it in names))
        rows = rows_of(names)
        try:
            (it,) = await self.recorder.call(
                "rows",
                deadline_s,
                lambda: log.append_arrow(vchannel, rows, deadline_s=deadline_s),
            )
        except FAILURES as error:
            self._failed(asked, error)
            return False
        places = tuple(Place(vchannel, it.id + n, it.tick + n) for n in range(len(names)))
        self._record(asked, places=places)
        return True

    async def _txn(self, chosen: random.Random, name: str) -> None:
        vchannel = chosen.choice(self.vchannels)
        payloads = tuple(f"{name}/{it}".encode() for it in range(chosen.randint(1, BODIES_MAX)))
        asked = self._asked("txn", vchannel, payloads, name)
        txn = self.log.txn(vchannel, keepalive_s=TXN_KEEPALIVE_S, deadline_s=TXN_STEP_S)
        ids = list[int]()

        async def step(sort: str, work: Callable[[], Awaitable[object]]) -> None:
            await self.recorder.call(f"txn {sort}", TXN_STEP_S, work)

        async def body(payload: bytes) -> None:
            if vchannel in self.of_rows:
                rows = rows_of([payload.decode()])
                (landed,) = await txn.append_arrow(rows, deadline_s=TXN_STEP_S)
                ids.append(landed.id)
            else:
                partition = self.counted.chosen(vchannel, name)
                key = key_of(payload.decode())
                one = await txn.append(payload, key=key, partition=partition, deadline_s=TXN_STEP_S)
                ids.append(one.id)

        try:
            await step("begin", txn.begin)
            for payload in payloads:
                await step("append", partial(body, payload))
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
        targets = tuple(chosen.sample(self.plain, chosen.randint(2, TARGETS_MAX)))
        keys = tuple(
            ResourceKey.collection(f"c{it}", shared=chosen.random() < 0.3)
            for it in chosen.sample(range(KEYS), chosen.randint(1, 3))
        )
        payload, counted = name.encode(), {*targets} & {*self.counted.vchannels}
        partition = OF_BROADCASTS if counted else ""
        asked = Asked(
            "broadcast", anyio.current_time(), targets, (payload,), keys, partition=partition
        )
        # Where rows are not counted, a header says nothing.
        header = self.counted.header() if counted else b""

        async def ask() -> tuple[Place, ...]:
            done = await self.log.broadcast.append(
                targets,
                payload,
                keys=keys,
                idempotency_key=name,
                deadline_s=BROADCAST_S,
                header=header,
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

    async def _staged(self, chosen: random.Random, name: str) -> None:
        """Two parts on several vchannels, committed as one batch or given up."""
        app, _, number = name.rpartition("/")
        targets = chosen.sample(self.vchannels, chosen.randint(2, TARGETS_MAX))
        asked = [
            replace(
                self._asked("staged", it, [f"{name}/{it}/{n}".encode() for n in range(2)], name),
                batch=name,
            )
            for it in targets
        ]
        committing, outcome, error = False, Outcome.ACKNOWLEDGED, ""
        try:
            parts = [await self._stage(app, int(number), at, asked[at::2]) for at in range(2)]
            if chosen.random() < 0.2:
                outcome = Outcome.ABSENT
                await self.recorder.call("abort", APPEND_S, lambda: self.log.abort_batch(parts))
            else:
                committing = True
                await self._commit(app, int(number), parts)
        except WRONG_CALLS:
            raise
        except FAILURES as failure:
            never = not committing or isinstance(failure, TransactionExpired)
            outcome = Outcome.ABSENT if never else Outcome.UNKNOWN
            error = f"{type(failure).__name__}: {failure}"
        for each in asked:
            self._record(each, outcome, error=error)

    async def _stage(self, app: str, batch: int, part: int, asked: Sequence[Asked]) -> StagedPart:
        async def staged() -> StagedPart:
            async with self.log.stage(app, batch, part, deadline_s=TXN_STEP_S) as stage:
                for each in asked:
                    for payload in each.payloads:
                        await self._stage_one(stage, each, payload)
                return await stage.seal()

        steps = 1 + 4 * len(asked)
        return await self.recorder.call("stage", steps * TXN_STEP_S, staged)

    async def _stage_one(self, stage: Stage, asked: Asked, payload: bytes) -> None:
        (vchannel,) = asked.targets
        if vchannel in self.of_rows:
            await stage.append_arrow(vchannel, rows_of([payload.decode()]))
        else:
            partition = self.counted.chosen(vchannel, asked.batch)
            await stage.append(vchannel, payload, partition=partition)

    async def _commit(self, app: str, batch: int, parts: Sequence[StagedPart]) -> None:
        async def commit() -> object:
            return await self.log.commit_batch(app, batch, parts, deadline_s=COMMIT_S)

        try:
            await self.recorder.call("commit", COMMIT_S, commit)
        except OutcomeUnknown:  # the same parts: the same batch
            await self.recorder.call("commit again", COMMIT_S, commit)

    async def _cut(self, chosen: random.Random, name: str) -> None:
        vchannels = tuple(chosen.sample(self.vchannels, chosen.randint(1, len(self.vchannels))))
        began_s = anyio.current_time()
        try:
            cut = await self.recorder.call("cut", CUT_S, lambda: self.log.cut(vchannels))
        except WRONG_CALLS:
            raise
        except FAILURES:
            return
        taken = CutTaken(began_s, anyio.current_time(), vchannels, cut.tick)
        self.recorder.history.cuts.append(taken)
        await anyio.sleep(10 * PAUSE_S)

    async def _seal(self, chosen: random.Random, name: str) -> None:
        """So that segments end amid all, and new ones begin."""
        await seal_now_and_then(self.log, self.counted)
        await anyio.sleep(20 * PAUSE_S)

    def _asked(self, sort: str, vchannel: str, payloads: Sequence[bytes], name: str) -> Asked:
        """Of one vchannel, and begun now."""
        partition = self.counted.expected(vchannel, name)
        now_s = anyio.current_time()
        return Asked(sort, now_s, (vchannel,), tuple(payloads), partition=partition)

    def _failed(
        self, asked: Asked, error: TidemarkError | NeverEnded, begun: Txn | None = None
    ) -> None:
        """A transaction whose commit was never asked for is absent, whatever the error was.

        Raises the error when it is one of WRONG_CALLS.
        """
        if isinstance(error, WRONG_CALLS):
            raise error
        outcome = outcome_of(error)
        if begun is not None and (begun.cannot_commit or not begun.committing):
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
            asked.batch,
            asked.partition,
        )
        self.recorder.record(done)
