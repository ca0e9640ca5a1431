"""Who writes, reads and purges vchannels of their own during a storm.

Transactions stay open for seconds, a group lags behind, and purges reach close to the end: so many
of them must be refused. Messages are large, so that segments are mostly dead and are rewritten.
"""

import random
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, TidemarkError
from broker.client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    LeaseLost,
    ResourceAcquired,
    Unrecoverable,
)
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.patience import asked_again
from tests.chaos.storm.purging.purge_history import Look, Purged, Settled, Tried, Written
from tests.chaos.storm.readers import seen
from tests.chaos.storm.recorder import NeverEnded, Recorder

GROUP = "behind"
PADDING = b"." * 16 * 1024
WRITE_S, PURGE_S = 10.0, 30.0
TXN_S, TXN_STEP_S, KEEPALIVE_S = (0.1, 5.0), 8.0, 20.0
LEASE_S, PREFETCH_BYTES = 2.0, 256 * 1024
PAUSE_S, PURGE_EVERY_S, LAG_S, LOOK_S = 0.05, 0.3, 5.0, 10.0
TRANSACTORS = 3
"""Of a vchannel that nobody reads: nearly each purge finds a transaction open there."""
LOOK_AFTER_S = (TXN_S[1], 3.0, 3.0)
"""After a purge, and after the look before, where nobody reads."""
NEWEST = 40
"""A purge reaches to one of so many that were written last."""
REFUSED = (DeadlineExceeded, InvalidArgument, LeaseLost, ResourceAcquired, Unrecoverable)
"""What promises that nothing was changed."""
FAILURES = (TidemarkError, NeverEnded)


@dataclass(slots=True)
class PurgeLoad:
    """`enough` lets everybody end after what it is at. The vchannels are nobody else's.

    `unread`: those that no group reads, so that a purge has only transactions to spare.
    """

    log: Client
    recorder: Recorder
    vchannels: Collection[str]
    unread: Collection[str]
    seed: int
    enough: bool = False
    ticks: dict[str, list[int]] = field(default_factory=dict)
    """Of each vchannel, the ticks of what was written."""

    async def found(self) -> None:
        """Make the vchannels, and the group, which needs all from the first message on."""
        for vchannel in self.vchannels:
            await self._write(vchannel, f"first/{vchannel}".encode())
            if vchannel in self.unread:
                self.recorder.history.purges.unread.add(vchannel)
            else:
                await self.log.group(GROUP).create(vchannel, start="all")

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for vchannel in self.vchannels:
            reads = () if vchannel in self.unread else (self._reads,)
            for work in (self._writes, self._purges, *reads):
                tasks.start_soon(self._again, work, vchannel)
            of = TRANSACTORS if vchannel in self.unread else 1
            for one in range(of):
                tasks.start_soon(self._again, self._transacts, vchannel, one, of)

    async def look(self, vchannel: str, within_s: float) -> None:
        """Read what is left of it. Raises TidemarkError and TimeoutError."""
        began_s, torn, overtaken = anyio.current_time(), "", 0
        found: dict[bytes, int] = {}

        async def read() -> None:
            reader = self.log.read(vchannel, start="all", until="now")
            async for message in reader.messages():
                found.update({_named(it.payload): it.tick for it in seen([message])})

        try:
            await asked_again(read, within_s)
        except Unrecoverable as error:
            overtaken = purged_upto(str(error))
            torn = "" if overtaken else str(error)
        read_to = max(found.values(), default=0)
        look = Look(vchannel, began_s, anyio.current_time(), found, torn, overtaken, read_to)
        self.recorder.history.purges.looks.append(look)

    async def _again(
        self,
        work: Callable[[random.Random, str, int], Awaitable[None]],
        vchannel: str,
        one: int = 0,
        of: int = 1,
    ) -> None:
        """Until there is enough; `one` of so many that do the same with other numbers."""
        chosen, number = random.Random(f"{self.seed} {work.__name__} {vchannel} {one}"), one
        while not self.enough:
            number += of
            began_s = anyio.current_time()
            try:
                await work(chosen, vchannel, number)
            except FAILURES:
                if work in (self._writes, self._transacts):
                    tried = Tried(vchannel, began_s, anyio.current_time())
                    self.recorder.history.purges.tried.append(tried)
                continue
            finally:
                await anyio.sleep(PAUSE_S)

    async def _writes(self, chosen: random.Random, vchannel: str, number: int) -> None:
        await self._write(vchannel, f"{vchannel}/{number}".encode())
        if chosen.random() < 0.02:
            await anyio.sleep(chosen.uniform(0.0, 1.0))

    async def _write(self, vchannel: str, name: bytes) -> None:
        landed = await self.recorder.call(
            "purged append",
            WRITE_S,
            lambda: self.log.append(vchannel, name + PADDING, deadline_s=WRITE_S),
        )
        self._wrote(vchannel, [name], landed.tick)

    async def _transacts(self, chosen: random.Random, vchannel: str, number: int) -> None:
        names = [f"{vchannel}/txn {number}/{it}".encode() for it in range(chosen.randint(1, 4))]
        txn = self.log.txn(vchannel, keepalive_s=KEEPALIVE_S, deadline_s=TXN_STEP_S)
        await self.recorder.call("purged txn begin", TXN_STEP_S, txn.begin)
        for name in names:
            await txn.append(name + PADDING, deadline_s=TXN_STEP_S)
        await anyio.sleep(chosen.uniform(*TXN_S))
        landed = await self.recorder.call("purged txn commit", TXN_STEP_S, txn.commit)
        self._wrote(vchannel, names, landed.tick)

    async def _reads(self, chosen: random.Random, vchannel: str, number: int) -> None:
        """Take and acknowledge, for a while; then lag behind."""
        member = self.log.group(GROUP).join(
            vchannel, lease_s=LEASE_S, member=f"{number}", prefetch_bytes=PREFETCH_BYTES
        )
        with anyio.move_on_after(chosen.uniform(0.3, 2.0)):
            async with member:
                async for batch in member:
                    names = frozenset(_named(it.payload) for it in seen(batch.messages))
                    began_s, refused = anyio.current_time(), False
                    try:
                        await batch.ack()
                    except REFUSED:
                        refused = True
                    finally:  # also when its answer does not come: it may have been stored
                        if not refused:
                            settled = Settled(vchannel, began_s, names)
                            self.recorder.history.purges.settled.append(settled)
        await anyio.sleep(chosen.uniform(1.0, LAG_S))

    async def _purges(self, chosen: random.Random, vchannel: str, _: int) -> None:
        """Up to something that was written lately."""
        await anyio.sleep(PURGE_EVERY_S)
        ticks = self.ticks.get(vchannel)
        if not ticks:
            return
        newest = NEWEST if vchannel not in self.unread else NEWEST // 4
        upto = max(ticks[-1 - chosen.randrange(min(newest, len(ticks)))] - chosen.randint(0, 1), 1)
        began_s, told = anyio.current_time(), Told.OPEN
        try:
            await self.recorder.call("purge", PURGE_S, lambda: self.log.purge(vchannel, upto=upto))
            told = Told.DONE
        except FAILURES as error:
            # A deadline may pass between the check and the purge: only these changed nothing.
            refused = isinstance(error, InvalidArgument | ResourceAcquired)
            told = Told.REFUSED if refused else Told.OPEN
        done = Purged(vchannel, upto, began_s, anyio.current_time(), told)
        self.recorder.history.purges.purged.append(done)
        if told is Told.DONE and vchannel in self.unread:
            # The transactions of then end, and their segments are sealed and given back, before the
            # next purge hides what became of them.
            for pause_s in LOOK_AFTER_S:
                await anyio.sleep(pause_s)
                with suppress(TimeoutError):
                    await self.look(vchannel, LOOK_S)

    def _wrote(self, vchannel: str, names: list[bytes], tick: int) -> None:
        self.ticks.setdefault(vchannel, []).append(tick)
        now_s = anyio.current_time()
        written = [Written(vchannel, name, tick, now_s) for name in names]
        self.recorder.history.purges.written += written


def purged_upto(refusal: str) -> int:
    """Up to which tick a purge took what a reader was to read; 0: it was refused for more."""
    told = re.search(r"removed by a purge: the messages of \S+ up to tick (\d+) are gone", refusal)
    return 0 if told is None else int(told[1])


def _named(payload: bytes) -> bytes:
    return payload.rstrip(PADDING[:1])
