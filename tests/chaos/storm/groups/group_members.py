"""Members of groups during a storm, and somebody who has a group begin anew, by a seek or a drop.

Members take, acknowledge all or some, at once or in a transaction that they commit or roll back,
give back, extend, come late and vanish. Each group begins at the first message of its vchannels.
"""

import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, Received, TidemarkError
from broker.client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidTransactionState,
    LeaseLost,
    ResourceAcquired,
    TransactionExpired,
)
from broker.client.groups.consumer_group import ConsumerGroup
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.groups.group_history import ORDERED, Acked, OnVChannel, Reset, Taken
from tests.chaos.storm.groups.group_text import told_of
from tests.chaos.storm.patience import Patience, patient
from tests.chaos.storm.readers import seen
from tests.chaos.storm.recorder import NeverEnded, Recorder

LEASE_S, KEEPALIVE_S = 2.0, 3.0
SETTLE_S = RESET_S = 10.0
PREFETCH_BYTES = 64 * 1024
MEMBERS = 3
STAY_S = (0.5, 8.0)
PAUSE_S = 0.05
RESET_EVERY_S = 6.0
LEFT_S, LEFT_S_MAX = 1.0, 16.0
"""After so long without messages a group is looked at: it may have nothing left."""
REFUSED = (
    *(DeadlineExceeded, InvalidArgument, LeaseLost, ResourceAcquired),
    *(InvalidTransactionState, TransactionExpired),
)
"""What promises that nothing was changed."""
FAILURES = (TidemarkError, NeverEnded)
STEADY, RESTARTED = "steady", "restarted"


@dataclass(slots=True)
class GroupMembers:
    """`served`: the vchannels of each group; the one that is RESTARTED begins anew now and then.

    `enough` lets everybody end after what it is at.
    """

    log: Client
    recorder: Recorder
    served: Mapping[str, Collection[str]]
    seed: int
    enough: bool = False
    resting: bool = False
    """Members of RESTARTED are to leave, and none to join."""
    there: int = 0
    """How many of them there are."""
    joined_ever: int = 0

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for group in self.served:
            for number in range(MEMBERS):
                tasks.start_soon(self._again, group, number)
        if RESTARTED in self.served:
            tasks.start_soon(self._restart)

    async def _again(self, group: str, worker: int) -> None:
        chosen = random.Random(f"{self.seed} {group} {worker}")
        while not self.enough:
            await anyio.sleep(PAUSE_S)
            if group == RESTARTED and self.resting:
                continue
            vchannel = chosen.choice(sorted(self.served[group]))
            self.there += group == RESTARTED
            try:
                with anyio.move_on_after(chosen.uniform(*STAY_S)):
                    await self._be_member(chosen, OnVChannel(group, vchannel))
            except FAILURES:
                continue
            finally:
                self.there -= group == RESTARTED

    async def _be_member(self, chosen: random.Random, at: OnVChannel) -> None:
        joined_s, name = anyio.current_time(), self._name()
        async with self._member(at, name) as member:
            async for batch in member:
                left = self._took(at, name, joined_s, batch)
                await self._process(chosen, at, name, batch, left)
                if self.enough or (at.group == RESTARTED and self.resting):
                    return

    async def _process(
        self,
        chosen: random.Random,
        at: OnVChannel,
        name: str,
        batch: LeasedBatch,
        left: set[int],
    ) -> None:
        sort = chosen.random()
        if sort < 0.1:  # it vanishes, or is slow, and does nothing: the lease ends
            return
        if sort < 0.2:
            await self._settle("extend", lambda: batch.extend(deadline_s=SETTLE_S))
        elif sort < 0.3:  # it comes too late
            await anyio.sleep(chosen.uniform(0.5, 1.5) * LEASE_S)
        elif sort < 0.4:
            delay_s = chosen.uniform(0.0, 1.0)
            await self._settle("nack", lambda: batch.nack(delay_s=delay_s, deadline_s=SETTLE_S))
            return
        elif sort < 0.5 and len({it.tick for it in batch.messages}) > 1:
            # Whole ticks, as those of a transaction go together.
            middle = sorted({it.tick for it in batch.messages})[0]
            some = [it for it in batch.messages if it.tick <= middle]
            part = {it.id for it in some} & left
            told = await self._ack(at, name, batch, some, part)
            if told is Told.OPEN:  # nobody knows what is left
                return
            left -= part if told is Told.DONE else set()
        await self._ack(at, name, batch, None, left, in_txn=chosen.choice((None, True, False)))

    async def _settle(self, sort: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.recorder.call(f"group {sort}", SETTLE_S, work)
        except FAILURES:
            return  # it comes again, or not: both are judged by what is acknowledged

    async def _ack(
        self,
        at: OnVChannel,
        name: str,
        batch: LeasedBatch,
        some: list[Received] | None,
        ids: Collection[int],
        *,
        in_txn: bool | None = None,
    ) -> Told:
        """`in_txn`: in a transaction that is committed, or rolled back; None: in none."""
        began_s, told = anyio.current_time(), Told.OPEN

        async def ack() -> None:
            if in_txn is None:
                await batch.ack(some, deadline_s=SETTLE_S)
                return
            txn = self.log.txn(at.vchannel, keepalive_s=KEEPALIVE_S, deadline_s=SETTLE_S)
            async with txn:
                await txn.ack(batch, some, deadline_s=SETTLE_S)
                if not in_txn:
                    await txn.rollback()

        sort, steps = ("group ack", 1) if in_txn is None else ("group ack in a transaction", 4)
        try:
            await self.recorder.call(sort, steps * SETTLE_S, ack)
            told = Told.REFUSED if in_txn is False else Told.DONE
        except FAILURES as error:
            told = Told.REFUSED if isinstance(error, REFUSED) else Told.OPEN
        finally:  # also of one that vanishes meanwhile
            acked = Acked(at, name, began_s, anyio.current_time(), told, frozenset(ids))
            self.recorder.history.groups.acked.append(acked)
        return told

    def _took(self, at: OnVChannel, name: str, joined_s: float, batch: LeasedBatch) -> set[int]:
        messages = {it.id: it.payload for it in seen(batch.messages)}
        keys = {int(it.id): it.key for it in batch.messages if it.key is not None}
        taken = Taken(at, name, joined_s, anyio.current_time(), messages, keys)
        self.recorder.history.groups.taken.append(taken)
        return {*messages}

    def _member(self, at: OnVChannel, name: str) -> GroupMember:
        return self._group(at).join(
            at.vchannel, lease_s=LEASE_S, member=name, prefetch_bytes=PREFETCH_BYTES
        )

    def _group(self, at: OnVChannel) -> ConsumerGroup:
        if at.group == ORDERED:
            return self.log.group(at.group, mode="ordered", by="key")
        return self.log.group(at.group)

    def _name(self) -> str:
        self.joined_ever += 1
        return f"member {self.joined_ever}"

    # ---- begin anew -------------------------------------------------------------------------

    async def _restart(self) -> None:
        chosen = random.Random(f"{self.seed} restart")
        while not self.enough:
            await anyio.sleep(RESET_EVERY_S * chosen.uniform(0.5, 1.5))
            self.resting = True
            while self.there:  # noqa: ASYNC110 - members that end within seconds
                await anyio.sleep(PAUSE_S)
            for vchannel in self.served[RESTARTED]:
                await self._reset(chosen, OnVChannel(RESTARTED, vchannel))
            self.resting = False

    async def _reset(self, chosen: random.Random, at: OnVChannel) -> None:
        group, how = self._group(at), chosen.choice(("sought", "dropped"))

        async def seek() -> object:
            return await group.seek(at.vchannel, "all")

        async def drop() -> object:
            await group.drop(at.vchannel)
            return None

        began_s, told = anyio.current_time(), Told.DONE
        work = seek if how == "sought" else drop
        try:
            await self.recorder.call(f"group {how}", RESET_S, work)
        except FAILURES as error:
            told = Told.REFUSED if isinstance(error, ResourceAcquired) else Told.OPEN
        done = Reset(at, how, began_s, anyio.current_time(), told)
        self.recorder.history.groups.resets.append(done)

    # ---- the end ----------------------------------------------------------------------------

    async def drain(self, markers: Mapping[str, int]) -> list[Violation]:
        """Have each group acknowledge what is left up to these ticks; who cannot, as violations."""
        late: list[Violation] = []

        async def drain_one(at: OnVChannel) -> None:
            upto, left_s, settled = markers[at.vchannel], LEFT_S, set[int]()
            with patient() as patience:
                while not await self._drained(at, upto, left_s, settled, patience):
                    # Where the first messages take longer than that, the next member waits longer.
                    left_s = min(2 * left_s, LEFT_S_MAX)
                    await anyio.sleep(PAUSE_S)
                self.recorder.history.groups.drained.append(at)
                return
            text = f"{at.group} has messages left up to tick {upto} {patience.waited}"
            text = f"{text}: {await told_of(self._group(at), self.log, at.vchannel)}"
            late.append(Violation("group not drained", text, at.vchannel))

        async with anyio.create_task_group() as tasks:
            for group, vchannels in self.served.items():
                for vchannel in vchannels:
                    tasks.start_soon(drain_one, OnVChannel(group, vchannel))
        return late

    async def _drained(
        self, at: OnVChannel, upto: int, left_s: float, settled: set[int], patience: Patience
    ) -> bool:
        """Acknowledge what comes until nothing does; whether that was all."""
        joined_s, name = anyio.current_time(), self._name()
        try:
            async with self._member(at, name) as member:
                while True:
                    with anyio.move_on_after(left_s) as waited:
                        batch = await anext(member)
                    if waited.cancelled_caught:
                        break
                    ids = self._took(at, name, joined_s, batch)
                    if await self._ack(at, name, batch, None, ids) is Told.DONE:
                        settled |= ids
                        patience.saw(len(settled))
                (view,) = await self._group(at).describe(at.vchannel)
                patience.saw(("floor", view.group.floor))
                return view.group.floor >= upto
        except FAILURES:
            return False
