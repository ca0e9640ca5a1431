"""A load that has every kind of actor at work: who appends, reads, asks, reports and waits.

Each caller counts what it got and how long the slowest took; an error that the client does not get
over by itself ends the test.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from broker.client import Appended, Client, OutcomeUnknown, ResourceKey, Scanner, StagedPart, Txn
from broker.client.cluster import ResourceDomain
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import LeaseLost, ServerFailed, ServerStopping
from broker.client.groups.leased_batch import LeasedBatch

STEP_S_MAX = 60.0
POLL_S = 0.01
LINGERING_S = 600.0


@dataclass(slots=True)
class Calls:
    """What the callers of each sort have got since the start, and since the last look."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    async def timed(self, sort: str, call: Callable[[], Awaitable[object]]) -> None:
        began_s = anyio.current_time()
        await call()
        self.slowest_s[sort] = max(self.slowest_s[sort], anyio.current_time() - began_s)
        self.counts[sort] += 1

    def slowest(self) -> dict[str, int]:
        """Milliseconds, since the last call of this."""
        found = {sort: round(s * 1e3) for sort, s in sorted(self.slowest_s.items())}
        self.slowest_s.clear()
        return found

    async def all_go_on(self, times: int = 2) -> None:
        """Until each sort of caller has that many answers more; what it asked before counts."""
        wanted = {sort: count + times for sort, count in self.counts.items()}
        await until(lambda: all(self.counts[sort] >= count for sort, count in wanted.items()))


@dataclass(slots=True)
class Channel:
    """One pchannel under load."""

    name: str
    acknowledged: dict[bytes, Appended] = field(default_factory=dict)
    received: list[tuple[int, int, bytes]] = field(default_factory=list)
    txns_lost: int = 0

    @property
    def vchannel(self) -> str:
        return NewVChannel(f"{self.name}_7v0")


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(STEP_S_MAX):
        while not true():  # noqa: ASYNC110 - a live system is looked at from outside
            await anyio.sleep(POLL_S)


class Load:
    """Runs in a task group until `finish`.

    The broker needs `node_acks=False`: one broadcast waits for an acknowledgement all the time, so
    that there is the actor of a broadcast to kill at any moment.
    """

    def __init__(self, log: Client, names: tuple[str, ...], workers: int) -> None:
        self.calls = Calls()
        self.channels = [Channel(name) for name in names]
        self._log = log
        self._workers = workers
        self._enough = False
        self.batches = 0
        self._readers: list[Scanner] = []

    async def start(self, tasks: TaskGroup, background: TaskGroup) -> None:
        """`tasks` end by themselves after `finish`, `background` has to be cancelled."""
        for channel in self.channels:
            reader = self._log.read(channel.vchannel)
            await reader.open()
            background.start_soon(self._collect, channel, reader)
            background.start_soon(self._work_in_group, channel)
            tasks.start_soon(self._hold_txn_open, channel)
            for number in range(self._workers):
                tasks.start_soon(self._append, channel, number)
        vchannels = [channel.vchannel for channel in self.channels]
        key = ResourceKey(ResourceDomain.COLLECTION_NAME, "held")
        linger = partial(
            self._log.broadcast.append, vchannels, b"held", keys=[key], ack_sync_up=True,
            deadline_s=LINGERING_S,
        )  # fmt: skip
        background.start_soon(linger)
        background.start_soon(self._watch_cluster)
        tasks.start_soon(self._ask, "cut", lambda: self._log.cut(vchannels))
        tasks.start_soon(self._ask, "collections", self._log.collections.list)
        tasks.start_soon(self._ask, "health", self._log.admin.health)
        tasks.start_soon(self._ask, "cursor", lambda: self._move_cursor(vchannels))
        tasks.start_soon(self._report)
        tasks.start_soon(self._commit_batches, vchannels)
        await until(lambda: len(self.calls.counts) == 10 and min(self.calls.counts.values()) > 1)

    def finish(self) -> None:
        """Callers end after what they are at."""
        self._enough = True

    async def _append(self, channel: Channel, worker: int) -> None:
        for number in itertools.count():
            if self._enough:
                return
            payload = b"%d/%d" % (worker, number)

            async def append(payload: bytes = payload) -> None:
                landed = await self._log.append(channel.vchannel, payload, deadline_s=STEP_S_MAX)
                channel.acknowledged[payload] = landed

            await self.calls.timed("append", append)

    async def _work_in_group(self, channel: Channel) -> None:
        """What is not acknowledged comes again, so the member need not care."""
        member = self._log.group("workers").join(channel.vchannel, lease_s=5.0)
        async with member:
            async for batch in member:

                async def ack(batch: LeasedBatch = batch) -> None:
                    with suppress(LeaseLost, OutcomeUnknown, ServerFailed, ServerStopping):
                        await batch.ack()

                await self.calls.timed("group", ack)

    async def _hold_txn_open(self, channel: Channel) -> None:
        """One transaction over all that happens; it must be read whole in the end.

        What its writer took along may be in it or not: the transaction is given up and begun again.
        """
        while True:
            txn = self._log.txn(channel.vchannel, keepalive_s=LINGERING_S, deadline_s=STEP_S_MAX)
            try:
                async with txn as held:
                    await self._fill(held, channel.txns_lost)
                return
            except OutcomeUnknown:
                channel.txns_lost += 1

    async def _fill(self, txn: Txn, attempt: int) -> None:
        for number in itertools.count():
            if self._enough and number > 1:
                return
            append = partial(txn.append, b"in txn %d %d" % (attempt, number))
            await self.calls.timed("txn append", append)
            await anyio.sleep(POLL_S)

    async def _commit_batches(self, vchannels: Sequence[str]) -> None:
        """Each batch has a row on every vchannel; one that was lost on the way is staged again."""
        while not self._enough:
            attempt, part = 0, None
            while part is None:
                part = await self._staged(vchannels, attempt)
                attempt += 1
            parts = [part]
            commit = partial(self._log.commit_batch, "load", self.batches, parts)
            await self.calls.timed("batch", commit)
            self.batches += 1

    async def _staged(self, vchannels: Sequence[str], attempt: int) -> StagedPart | None:
        try:
            async with self._log.stage("load", self.batches, 0, attempt) as stage:
                for vchannel in vchannels:
                    row = b"batch %d" % self.batches
                    await stage.append(vchannel, row, deadline_s=STEP_S_MAX)
                return await stage.seal()
        except OutcomeUnknown:  # its writer died with the row in hand
            return None

    async def _ask(self, sort: str, call: Callable[[], Awaitable[object]]) -> None:
        while not self._enough:
            await self.calls.timed(sort, call)
            await anyio.sleep(POLL_S)

    async def _report(self) -> None:
        async with self._log.barrier("nightly").join("worker") as peer:
            while not self._enough:
                tick = (await self._log.cut(self.channels[0].vchannel)).tick
                report = partial(peer.report, tick, deadline_s=STEP_S_MAX)
                await self.calls.timed("report", report)
                await anyio.sleep(POLL_S)

    async def _move_cursor(self, vchannels: Sequence[str]) -> None:
        cut = await self._log.cut(vchannels)
        await self._log.cursor("copied").move(cut.tick, vchannels, deadline_s=STEP_S_MAX)

    async def _watch_cluster(self) -> None:
        last = 0
        async for tick in self._log.barrier().watch():
            assert tick > last
            last = tick
            self.calls.counts["cluster tick"] += 1

    async def _collect(self, channel: Channel, reader: Scanner) -> None:
        async for message in reader.messages():
            channel.received.append((message.id, message.tick, message.payload))

    async def check(self) -> None:
        """Readers saw what is stored, once each and in order; what was acknowledged is stored."""
        for channel in self.channels:
            held = (await self._log.offsets.describe([channel.vchannel]))[channel.vchannel]
            whole = self._log.read_range(channel.vchannel, held.first_id, held.next_id)
            stored = [(it.id, it.tick, it.payload) async for it in whole.messages()]
            await until(lambda c=channel, s=stored: bool(c.received) and c.received[-1] >= s[-1])  # type: ignore[misc]
            assert channel.received == stored
            ticks = [tick for _, tick, _ in stored]
            assert ticks == sorted(ticks)
            found = {id_: (tick, payload) for id_, tick, payload in stored}
            assert len(found) == len(stored)
            for payload, landed in channel.acknowledged.items():
                assert found.get(landed.id) == (landed.tick, payload)
            in_txn = [payload for _, _, payload in stored if payload.startswith(b"in txn")]
            attempt = channel.txns_lost
            assert in_txn == [b"in txn %d %d" % (attempt, it) for it in range(len(in_txn))]
            assert len(in_txn) > 1
            batches = [payload for _, _, payload in stored if payload.startswith(b"batch ")]
            assert batches == [b"batch %d" % number for number in range(self.batches)]
