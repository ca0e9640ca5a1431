"""From messages to acknowledgements: encodes, finds the producer, waits for the answer.

It owns the producers, one for each pchannel that was ever appended to.
Next: broker/client/producer.py
"""

import asyncio
from collections.abc import Iterable

import anyio
from anyio.abc import TaskGroup

from broker.client.errors import AppendsFailed, InvalidArgument, MessageTooLarge, TidemarkError
from broker.client.message import Appended, Message, encode, unsendable
from broker.client.network import Network
from broker.client.outbox import Limits, Pending
from broker.client.producer import Producer, Waiter
from broker.client.targets import Shards
from broker.core.naming import pchannel_of
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName

MESSAGE_BYTES_MAX = 16 * 1024 * 1024 - 1024
"""A larger frame would end the stream of everybody; the server's own limit for one is lower."""


class Appends:
    """What one client appends."""

    def __init__(self, network: Network, tasks: TaskGroup, limits: Limits, *, resend: bool) -> None:
        self._network = network
        self._tasks = tasks
        self._limits = limits
        self._resend = resend
        self._now_s = asyncio.get_running_loop().time
        self._by_vchannel: dict[VChannelName, Producer] = {}
        self._by_pchannel: dict[PChannelName, Producer] = {}

    async def one(self, shards: Shards, message: Message, deadline_s: float) -> Appended:
        """Append one message, to the shard of its key."""
        vchannel = shards.choose(message.key)
        encoded = _sendable(message, vchannel)
        pending = await self._offer(vchannel, encoded, self._now_s() + deadline_s)
        return await _landed(vchannel, pending)

    async def in_txn(
        self,
        vchannel: VChannelName,
        message: Message,
        txn: str,
        deadline_s: float,
        *,
        once: bool = False,
    ) -> tuple[Appended, bytes]:
        """One message of a transaction, and the transaction as the server names it.

        `once`: OutcomeUnknown rather than a second one, as is right for what is not idempotent.
        """
        encoded = _encoded(message, vchannel, txn)
        deadline_at_s = self._now_s() + deadline_s
        pending = await self._offer(vchannel, encoded, deadline_at_s, once=once)
        return await _landed(vchannel, pending), pending.waiter.result().txn_context

    async def many(
        self, shards: Shards, messages: Iterable[Message], deadline_s: float
    ) -> list[Appended]:
        """Append all, wait for all, give the results in order; AppendsFailed when any failed."""
        work: list[tuple[VChannelName, bytes]] = []
        for message in messages:
            vchannel = shards.choose(message.key)
            work.append((vchannel, _sendable(message, vchannel)))
        deadline_at_s = self._now_s() + deadline_s
        offered: list[Pending[Waiter] | TidemarkError] = []
        try:
            for vchannel, encoded in work:
                offered.append(await self._offer_or_fail(vchannel, encoded, deadline_at_s))
            results = [
                it if isinstance(it, TidemarkError) else await _landed_or_failed(vchannel, it)
                for (vchannel, _), it in zip(work, offered, strict=True)
            ]
        except asyncio.CancelledError:
            _abandon(offered)
            raise
        landed = [it for it in results if isinstance(it, Appended)]
        if len(landed) < len(results):
            raise AppendsFailed(results)
        return landed

    async def finish(self, deadline_s: float) -> None:
        """Take nothing more in, and wait for the answers that are still on their way."""
        for producer in self._by_pchannel.values():
            producer.close()
        with anyio.move_on_after(deadline_s):
            for producer in self._by_pchannel.values():
                await producer.ended.wait()

    async def _offer(
        self, vchannel: VChannelName, encoded: bytes, deadline_at_s: float, *, once: bool = False
    ) -> Pending[Waiter]:
        producer = self._by_vchannel.get(vchannel) or self._producer(vchannel)
        if not producer.has_room:
            await producer.wait_for_room(deadline_at_s)
        return producer.offer(encoded, deadline_at_s, once=once)

    async def _offer_or_fail(
        self, vchannel: VChannelName, encoded: bytes, deadline_at_s: float
    ) -> Pending[Waiter] | TidemarkError:
        try:
            return await self._offer(vchannel, encoded, deadline_at_s)
        except TidemarkError as error:
            return error

    def _producer(self, vchannel: VChannelName) -> Producer:
        name = pchannel_of(vchannel)
        producer = self._by_pchannel.get(name)
        if producer is None:
            producer = Producer(name, self._network, self._limits, resend=self._resend)
            self._by_pchannel[name] = producer
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
    )


async def _landed_or_failed(
    vchannel: VChannelName, pending: Pending[Waiter]
) -> Appended | TidemarkError:
    try:
        return await _landed(vchannel, pending)
    except TidemarkError as error:
        return error


def _abandon(offered: Iterable[Pending[Waiter] | TidemarkError]) -> None:
    for pending in offered:
        if isinstance(pending, Pending):
            pending.abandoned = True
            pending.waiter.cancel()


def _sendable(message: Message, vchannel: VChannelName) -> bytes:
    reason = unsendable(message)
    if reason:
        raise InvalidArgument(reason)
    return _encoded(message, vchannel)


def _encoded(message: Message, vchannel: VChannelName, txn: str = "") -> bytes:
    encoded = encode(message, vchannel, txn)
    if len(encoded) > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"a message of {len(encoded)} bytes; the client sends at most {MESSAGE_BYTES_MAX}"
        )
    return encoded
