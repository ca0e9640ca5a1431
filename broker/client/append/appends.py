"""Appends messages and batches: chooses the producer, waits for the answers.

Each pchannel that is appended to has up to two producers: one that gathers plain messages into
batches, and one that sends single messages over Milvus's Produce: the begin, commit and rollback of
transactions, and messages whose type, version or header the log interprets.

Next: broker/client/append/batch_producer.py
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence

import anyio
from anyio.abc import TaskGroup

from broker.client.append.append_results import (
    Offered,
    abandon,
    batch_result,
    batch_results,
    outcome_of,
    result_of,
)
from broker.client.append.batch_producer import BatchProducer, Gathering
from broker.client.append.named_partitions import (
    NamedPartitions,
    check_rows,
    in_partition,
    in_partitions,
)
from broker.client.append.outbox import Outbox, SendLimits
from broker.client.append.outgoing_batch import BatchHeader, Ticket
from broker.client.append.prepare import Prepared, batch_header, check_batch, is_plain, prepare
from broker.client.append.producer import Producer
from broker.client.append.producer_pool import ProducerPool
from broker.client.append.txn_appends import TxnAppends
from broker.client.batch import AppendedBatch
from broker.client.cluster.targets import Shards
from broker.client.errors import AppendsFailed, BadTarget, TidemarkError
from broker.client.message import Appended, Key, Message, key_bytes
from broker.client.net.network import Network
from broker.model.ids import PChannelName, VChannelName


class Appends:
    """All appends of one client."""

    def __init__(
        self,
        network: Network,
        tasks: TaskGroup,
        limits: SendLimits,
        gathering: Gathering,
        partitions: NamedPartitions,
        *,
        resend: bool,
    ) -> None:
        self.partitions = partitions
        self.compression = gathering.compression
        # Producers arm deadlines with `call_at`, so these must be of the event loop's clock.
        self._now_s = asyncio.get_running_loop().time

        def single(name: PChannelName) -> Producer:
            return Producer(name, network, Outbox(limits), resend=resend)

        def batches(name: PChannelName) -> BatchProducer:
            new_name = network.new_name
            return BatchProducer(name, network, limits, gathering, new_name, resend=resend)

        self._single = ProducerPool(single, tasks)
        self._batches = ProducerPool(batches, tasks)
        self.of_txns = TxnAppends(self._single, self._batches, self._now_s, gathering.bytes_max)

    async def one(
        self, shards: Shards, message: Message, deadline_s: float, level: int = 0
    ) -> Appended:
        """Append one message, to the shard of its key; returns when it is acknowledged."""
        vchannel = shards.choose_for(message)
        work = prepare(message, vchannel, deadline_s, level, raw=shards.raw)
        offered = await self._offer(work, deadline_s)
        return await (result_of(*offered) if isinstance(offered, tuple) else offered)

    async def one_with(
        self,
        partition: str | None,
        times: bytes,
        shards: Shards,
        message: Message,
        deadline_s: float,
        level: int,
    ) -> Appended:
        """As `one`, into a partition by its name, if any, and with these delivery times.

        Raises as `NamedPartitions.into`.
        """
        if partition is None:
            return await (await self.soon(shards, message, deadline_s, level, times))
        check_rows([message])

        async def append(named: bytes) -> Appended:
            return await (await self.soon(shards, message, deadline_s, level, named + times))

        return await self.partitions.into(shards.vchannels[0], partition, append)

    def soon(
        self, shards: Shards, message: Message, deadline_s: float, level: int, named: bytes = b""
    ) -> Awaitable[Ticket]:
        """Queue one plain message once there is room; the caller must await this at once.

        `named`, here and below: properties that the log reads, such as the partition of the rows.
        """
        if not is_plain(message):
            raise BadTarget(
                f"a message of type {message.type} cannot be part of a batch: use append"
            )
        vchannel = shards.choose_for(message)
        header = batch_header(vchannel, message, deadline_s, level, raw=shards.raw)
        if named:
            header = in_partition(header, named)
        return self._gather(message, header, deadline_s)

    async def batch(
        self, header: BatchHeader, payloads: Sequence[bytes], keys: Sequence[Key | None] | None
    ) -> AppendedBatch:
        """Append all as one batch."""
        check_batch(payloads, keys)
        given = [None if key is None else key_bytes(key) for key in keys or [None] * len(payloads)]
        producer = self._batches.of(header.vchannel)
        # Before the wait for room, which counts towards the deadline.
        deadline_at_s = self._now_s() + header.deadline_s
        if not producer.has_room:
            await producer.wait_for_room(deadline_at_s)
        pending = producer.offer_batch(header, payloads, given, deadline_at_s)
        return batch_result(await result_of(header.vchannel, pending), len(payloads))

    async def batch_into(
        self,
        partition: str,
        header: BatchHeader,
        payloads: Sequence[bytes],
        keys: Sequence[Key | None] | None,
    ) -> AppendedBatch:
        """As `batch`, into a partition by its name. Raises as `NamedPartitions.into`."""

        async def append(named: bytes) -> AppendedBatch:
            return await self.batch(in_partition(header, named), payloads, keys)

        return await self.partitions.into(header.vchannel, partition, append)

    async def rows(
        self,
        pieces: Iterable[tuple[VChannelName, int, bytes]],
        properties: Mapping[str, str],
        deadline_s: float,
        level: int = 0,
        txn: str = "",
        named: bytes = b"",
    ) -> list[AppendedBatch]:
        """Append batches of Arrow rows, each a number of rows and its body; wait for all.

        `txn`: the transaction that the rows are bodies of. Raises AppendsFailed when some failed,
        the first error when all did. Pieces after one that cannot be made or sent are not tried.
        """
        deadline_at_s = self._now_s() + deadline_s
        offered: list[Offered | TidemarkError] = []
        counts: list[int] = []
        try:
            try:
                for vchannel, count, body in pieces:
                    counts.append(count)
                    plain = Message(b"", properties=properties)
                    header = batch_header(vchannel, plain, deadline_s, level, txn)
                    if named:
                        header = in_partition(header, named)
                    producer = self._batches.of(vchannel)
                    if not producer.has_room:
                        await producer.wait_for_room(deadline_at_s)
                    pending = producer.offer_rows(header, body, count, deadline_at_s)
                    offered.append((vchannel, pending))
            except TidemarkError as error:
                offered.append(error)
                # A piece that failed while it was made has no count yet; its error needs none.
                counts = [*counts, 0][: len(offered)]
            results = [await outcome_of(it) for it in offered]
        except asyncio.CancelledError:
            abandon(offered)
            raise
        return batch_results(results, counts)

    async def _gather(self, message: Message, header: BatchHeader, deadline_s: float) -> Ticket:
        producer = self._batches.of(header.vchannel)
        return await producer.gather_when_room(header, message, self._now_s() + deadline_s)

    async def many(
        self, shards: Shards, messages: Iterable[Message], deadline_s: float, named: bytes = b""
    ) -> list[Appended]:
        """Append all and wait for all; results in order. AppendsFailed when any failed."""
        # All are checked before one is sent: an invalid message keeps the others out of the log.
        work = [prepare(it, shards.choose_for(it), deadline_s, raw=shards.raw) for it in messages]
        if named:
            work = in_partitions(work, named)
        offered: list[Offered | TidemarkError] = []
        try:
            for each in work:
                result = await self._offer_or_fail(each, deadline_s)
                offered.append(result)
            results = [await outcome_of(it) for it in offered]
        except asyncio.CancelledError:
            abandon(offered)
            raise
        good = [it for it in results if isinstance(it, Appended)]
        if len(good) < len(results):
            raise AppendsFailed(results)
        return good

    async def finish(self, deadline_s: float) -> None:
        """Refuse further appends, and wait for the answers of those in flight."""
        # All are closed before the first is waited for: they drain at the same time.
        producers = [*self._single.all(), *self._batches.all()]
        for producer in producers:
            producer.close()
        with anyio.move_on_after(deadline_s):
            for producer in producers:
                await producer.ended.wait()

    async def _offer(self, work: Prepared, deadline_s: float) -> Offered:
        message, vchannel, how = work
        if isinstance(how, BatchHeader):
            return await self._gather(message, how, deadline_s)
        producer = self._single.of(vchannel)
        return vchannel, await producer.offer_when_room(how, self._now_s() + deadline_s)

    async def _offer_or_fail(self, work: Prepared, deadline_s: float) -> Offered | TidemarkError:
        try:
            return await self._offer(work, deadline_s)
        except TidemarkError as error:
            return error
