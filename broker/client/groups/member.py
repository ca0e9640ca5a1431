"""A member of a group: an async iterator over the messages it gets on lease."""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from broker.client.errors import TidemarkError
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member_stream import MemberStream
from broker.client.read.deliveries import Source
from broker.client.read.scanner import Reading


class GroupMember:
    """`async with log.group("workers").join("trains") as member: async for batch in member: ...`.

    A member from the first step, or from the begin of `async with`, to the end of the block. After
    a lost connection, or when a vchannel moves, it joins again; what it had on lease there is
    delivered again, and its acknowledgement refused. Use it from one task at a time; batches may be
    settled by any task.

    A message whose next delivery is its last one comes as a batch of its own (`alone`): the step
    that returns it, and the next one, wait until what came before is settled or its leases over.

    Raises NoSuchGroup when the group is dropped, and final refusals of the server.
    """

    def __init__(
        self,
        plan: Callable[[], Awaitable[Sequence[Source[LeasedBatch]]]],
        tasks: TaskGroup,
        streams: set[MemberStream],
    ) -> None:
        """`streams`: those that are open now; the sources of the plan keep the set."""
        self._streams = streams
        self._given: list[LeasedBatch] = []
        self._alone: LeasedBatch | None = None
        self._next: LeasedBatch | None = None
        """Taken, and not given yet: a step that is cancelled loses no batch."""
        self._reading: Reading[LeasedBatch] = Reading(plan, tasks)

    async def open(self) -> None:
        """Join now, and not at the first step."""
        await self._reading.open()

    async def close(self) -> None:
        """Leave: others get what was not acknowledged. Raises nothing, and may be called again."""
        # First: nothing more is acknowledged over a stream that is about to end.
        for stream in list(self._streams):
            stream.leave()
        await self._reading.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeasedBatch:
        while True:
            if self._alone is not None:
                await self._alone.over()
            if self._next is None:
                self._next = await self._reading.__anext__()
            batch = self._next
            # It waited here until the lease was over: another member has it by now.
            lost = not batch.lease_s or (batch.alone and not await self._begun(batch))
            self._next = None
            if lost:
                continue
            self._given = [*self._running(), batch]
            self._alone = batch if batch.alone else None
            return batch

    def _running(self) -> list[LeasedBatch]:
        """What was given, is not settled, and is still on lease."""
        now_s = anyio.current_time()
        return [it for it in self._given if not it.settled and it.until_s > now_s]

    async def _begun(self, batch: LeasedBatch) -> bool:
        """Begin a last delivery, with nothing beside it: what fails now fails by itself."""
        given = self._running()
        for each in given:
            await each.over()
        try:
            if given:
                # The lease began before that: the program gets all of it.
                await batch.extend()
            await batch.begin()
        except TidemarkError:
            return False  # it comes again, and this was no delivery
        return True

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()
