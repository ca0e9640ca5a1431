"""From messages to acknowledgements: encodes, finds the producer, waits for the answer.

It owns the producers of each pchannel that was ever appended to: one that gathers batches, for
plain messages, and one that sends single messages as Milvus does, for those of transactions and
those that mean something to the log itself.
Next: broker/client/batch_producer.py
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from broker.client.batch import AppendedBatch
from broker.client.batch_producer import BatchProducer, Gathering, Shared, Ticket
from broker.client.durability import word_of
from broker.client.errors import (
    AppendsFailed,
    BadTarget,
    OutcomeUnknown,
    TidemarkError,
    TransactionExpired,
)
from broker.client.message import Appended, Key, Message, key_bytes
from broker.client.network import Network
from broker.client.outbox import Limits, Pending
from broker.client.producer import Producer, Waiter
from broker.client.sendable import (
    Ready,
    body_of_txn,
    check_batch,
    encoded,
    is_plain,
    ready,
    shared_of,
)
from broker.client.targets import Shards
from broker.core.naming import pchannel_of
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName

P = TypeVar("P", bound=Producer)


class Appends:
    """What one client appends."""

    def __init__(
        self,
        network: Network,
        tasks: TaskGroup,
        limits: Limits,
        gathering: Gathering,
        *,
        resend: bool,
    ) -> None:
        self._tasks = tasks
        self.compression = gathering.compression
        self._now_s = asyncio.get_running_loop().time

        def single(name: PChannelName) -> Producer:
            return Producer(name, network, limits, resend=resend)

        def batches(name: PChannelName) -> BatchProducer:
            new_name = network.new_name
            return BatchProducer(name, network, limits, gathering, new_name, resend=resend)

        self._single = _ByChannel(single, tasks)
        self._batches = _ByChannel(batches, tasks)

    async def one(
        self, shards: Shards, message: Message, deadline_s: float, level: int = 0
    ) -> Appended:
        """Append one message, to the shard of its key."""
        vchannel = shards.choose(message.key)
        offered = await self._offer(ready(message, vchannel, deadline_s, level), deadline_s)
        return await (_landed(*offered) if isinstance(offered, tuple) else offered)

    async def soon(self, shards: Shards, message: Message, deadline_s: float, level: int) -> Ticket:
        """Take one plain message in, when there is room for it."""
        if not is_plain(message):
            raise BadTarget(f"a message of type {message.type} is appended by itself: use append")
        vchannel = shards.choose(message.key)
        shared = shared_of(vchannel, message, deadline_s, level)
        return await self._gather(message, shared, deadline_s)

    async def batch(
        self, shared: Shared, payloads: Sequence[bytes], keys: Sequence[Key | None] | None
    ) -> AppendedBatch:
        """Append all as one batch."""
        check_batch(payloads, keys)
        given = [None if key is None else key_bytes(key) for key in keys or [None] * len(payloads)]
        producer = self._batches.of(shared.vchannel)
        deadline_at_s = self._now_s() + shared.deadline_s
        if not producer.has_room:
            await producer.wait_for_room(deadline_at_s)
        pending = producer.offer_batch(shared, payloads, given, deadline_at_s)
        landed = await _landed(shared.vchannel, pending)
        return _batch_of(landed, len(payloads))

    async def rows(
        self,
        pieces: Iterable[tuple[VChannelName, int, bytes]],
        properties: Mapping[str, str],
        deadline_s: float,
        level: int,
    ) -> list[AppendedBatch]:
        """Append batches of Arrow rows, each a number of rows and its body; wait for all.

        When some failed and others did not: AppendsFailed; when none landed: the first error. What
        comes after a piece that cannot be made or sent is not tried.
        """
        deadline_at_s = self._now_s() + deadline_s
        offered: list[_Offered | TidemarkError] = []
        counts: list[int] = []
        try:
            try:
                for vchannel, count, body in pieces:
                    counts.append(count)
                    plain = Message(b"", properties=properties)
                    shared = shared_of(vchannel, plain, deadline_s, level)
                    producer = self._batches.of(vchannel)
                    if not producer.has_room:
                        await producer.wait_for_room(deadline_at_s)
                    pending = producer.offer_rows(shared, body, count, deadline_at_s)
                    offered.append((vchannel, pending))
            except TidemarkError as error:
                offered.append(error)
                counts = [*counts, 0][: len(offered)]
            results = [await _landed_or_failed(it) for it in offered]
        except asyncio.CancelledError:
            _abandon(offered)
            raise
        return _all_landed(results, counts)

    async def _gather(self, message: Message, shared: Shared, deadline_s: float) -> Ticket:
        producer = self._batches.of(shared.vchannel)
        if not producer.has_room:
            await producer.wait_for_room(self._now_s() + deadline_s)
        return producer.gather(shared, message)

    async def in_txn(
        self,
        vchannel: VChannelName,
        message: Message,
        txn: str,
        deadline_s: float,
        *,
        commits: bool = False,
    ) -> tuple[Appended, bytes]:
        """A begin or an end of a transaction, and the transaction as the server names it.

        `commits`: it is the end that counts. A server that does not know the transaction any more
        when it is sent again may have forgotten it because the first one was heard: OutcomeUnknown.
        """
        request = encoded(message, vchannel, txn)
        pending = await self._offer_single(vchannel, request, self._now_s() + deadline_s)
        try:
            landed = await _landed(vchannel, pending)
        except TransactionExpired as error:
            if commits and pending.unanswered:
                cause = f"a commit on {vchannel} was sent again, and its transaction is gone"
                raise OutcomeUnknown(f"{cause}; the first one may have been heard") from error
            raise
        return landed, pending.waiter.result().txn_context

    async def bodies(
        self, vchannel: VChannelName, messages: Iterable[Message], txn: str, deadline_s: float
    ) -> list[Appended | TidemarkError]:
        """Bodies of one transaction, each sent once, and what became of each, in order."""
        work = [body_of_txn(message, vchannel, txn) for message in messages]
        deadline_at_s = self._now_s() + deadline_s
        offered: list[_Offered | TidemarkError] = []
        try:
            for request in work:
                try:
                    pending = await self._offer_single(vchannel, request, deadline_at_s, once=True)
                    offered.append((vchannel, pending))
                except TidemarkError as error:
                    offered.append(error)
            return [await _landed_or_failed(it) for it in offered]
        except asyncio.CancelledError:
            _abandon(offered)
            raise

    async def many(
        self, shards: Shards, messages: Iterable[Message], deadline_s: float
    ) -> list[Appended]:
        """Append all, wait for all, give the results in order; AppendsFailed when any failed."""
        work = [ready(it, shards.choose(it.key), deadline_s) for it in messages]
        offered: list[_Offered | TidemarkError] = []
        try:
            for each in work:
                result = await self._offer_or_fail(each, deadline_s)
                offered.append(result)
            results = [await _landed_or_failed(it) for it in offered]
        except asyncio.CancelledError:
            _abandon(offered)
            raise
        landed = [it for it in results if isinstance(it, Appended)]
        if len(landed) < len(results):
            raise AppendsFailed(results)
        return landed

    async def finish(self, deadline_s: float) -> None:
        """Take nothing more in, and wait for the answers that are still on their way."""
        producers = [*self._single.all(), *self._batches.all()]
        for producer in producers:
            producer.close()
        with anyio.move_on_after(deadline_s):
            for producer in producers:
                await producer.ended.wait()

    async def _offer(self, work: Ready, deadline_s: float) -> "_Offered":
        message, vchannel, how = work
        if isinstance(how, Shared):
            return await self._gather(message, how, deadline_s)
        return vchannel, await self._offer_single(vchannel, how, self._now_s() + deadline_s)

    async def _offer_or_fail(self, work: Ready, deadline_s: float) -> "_Offered | TidemarkError":
        try:
            return await self._offer(work, deadline_s)
        except TidemarkError as error:
            return error

    async def _offer_single(
        self, vchannel: VChannelName, encoded: bytes, deadline_at_s: float, *, once: bool = False
    ) -> Pending[Waiter]:
        producer = self._single.of(vchannel)
        if not producer.has_room:
            await producer.wait_for_room(deadline_at_s)
        return producer.offer(encoded, deadline_at_s, once=once)


_Offered = Ticket | tuple[VChannelName, Pending[Waiter]]


class _ByChannel(Generic[P]):
    """The producers of one kind, made when they are first needed."""

    def __init__(self, make: Callable[[PChannelName], P], tasks: TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._by_vchannel: dict[VChannelName, P] = {}
        self._by_pchannel: dict[PChannelName, P] = {}

    def of(self, vchannel: VChannelName) -> P:
        return self._by_vchannel.get(vchannel) or self._made(vchannel)

    def all(self) -> list[P]:
        return list(self._by_pchannel.values())

    def _made(self, vchannel: VChannelName) -> P:
        name = pchannel_of(vchannel)
        producer = self._by_pchannel.get(name)
        if producer is None:
            producer = self._by_pchannel[name] = self._make(name)
            self._tasks.start_soon(producer.run)
        self._by_vchannel[vchannel] = producer
        return producer


async def _landed(vchannel: VChannelName, pending: Pending[Waiter]) -> Appended:
    try:
        answer = await pending.waiter
    except asyncio.CancelledError:
        pending.abandoned = True
        raise
    return Appended(
        vchannel,
        MessageId(answer.message_id),
        TimeTick(answer.tick),
        MessageId(answer.last_confirmed_id),
        word_of(answer.durability),
    )


def _batch_of(first: Appended, count: int) -> AppendedBatch:
    return AppendedBatch(*first[:4], count, first.durability)


def _all_landed(
    results: Sequence[Appended | TidemarkError], counts: Sequence[int]
) -> list[AppendedBatch]:
    batches = [
        it if isinstance(it, TidemarkError) else _batch_of(it, count)
        for it, count in zip(results, counts, strict=True)
    ]
    landed = [it for it in batches if isinstance(it, AppendedBatch)]
    if len(landed) == len(batches):
        return landed
    if landed:
        raise AppendsFailed(batches)
    raise next(it for it in batches if isinstance(it, TidemarkError))


async def _landed_or_failed(offered: _Offered | TidemarkError) -> Appended | TidemarkError:
    if isinstance(offered, TidemarkError):
        return offered
    try:
        return await (_landed(*offered) if isinstance(offered, tuple) else offered)
    except TidemarkError as error:
        return error


def _abandon(offered: Iterable[_Offered | TidemarkError]) -> None:
    for it in offered:
        if isinstance(it, tuple):
            it[1].abandoned = True
            it[1].waiter.cancel()
        elif not isinstance(it, TidemarkError):
            it.cancel()
