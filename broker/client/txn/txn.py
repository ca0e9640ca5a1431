"""A transaction: what is appended in it is read together, or never.

When the outcome of one of its messages is unknown, the transaction is rolled back, so that nothing
is in it twice. Begin and commit are sent again when an answer is lost: an unused begin expires, and
a repeated commit gets the answer of the first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, Unpack

import anyio

from broker.client.append.appends import Appends
from broker.client.append.arrow_batches import Piece, split_rows
from broker.client.append.delivery_properties import DeliverAt, delivery_properties
from broker.client.append.named_partitions import check_rows, in_partition
from broker.client.append.prepare import batch_header
from broker.client.batch import AppendedBatch
from broker.client.cluster.targets import Shards
from broker.client.errors import (
    AppendsFailed,
    BadTransaction,
    DeadlineExceeded,
    OutcomeUnknown,
    ProtocolBroken,
    TidemarkError,
)
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.message import NO_PROPERTIES, Appended, Key, Kind, Message, Received
from broker.model.ids import VChannelName
from broker.model.message import MessageType
from schemas.properties.keys import TXN
from schemas.properties.txn_context import TxnContext, begin_header

if TYPE_CHECKING:
    import pyarrow as pa

Resolve = Callable[[], Awaitable[Shards]]
"""Finds the one vchannel of the transaction."""

ROLLBACK_S = 5.0
"""A rollback that is not answered by then is left to the keepalive."""

# Milvus's messages of transactions have version 2.
_VERSION = 2

T = TypeVar("T")


class Txn:
    """A transaction on one vchannel, made by `Client.txn`; use it with `async with`.

        async with log.txn(vchannel) as txn:
            await txn.append(b"both")
            await txn.append(b"or neither")

    Leaving the block commits, an exception rolls back. Raises TransactionExpired when the keepalive
    passed after the newest append, or a flush or a change of the collection ended the transaction:
    nothing of it will be read, and all of it may be tried again.
    """

    def __init__(
        self,
        appends: Appends,
        resolve: Resolve,
        keepalive_ms: int,
        deadline_s: float,
        *,
        begins_with: Mapping[str, str] = NO_PROPERTIES,
    ) -> None:
        """`begins_with`: the properties of its begin."""
        self._appends = appends
        self._resolve = resolve
        self._vchannel = VChannelName("")
        self._shards = Shards(None, ())
        self._keepalive_ms = keepalive_ms
        self._begins_with = begins_with
        self._deadline_s = deadline_s
        self._context: TxnContext | None = None
        self._name = ""
        self._under_way = 0
        self._unknown: TidemarkError | None = None
        self._ended = self._committing = False

    @property
    def id(self) -> int:
        """The id, unique on its pchannel; 0 before the begin."""
        return self._context.txn_id if self._context else 0

    @property
    def vchannel(self) -> VChannelName:
        """The vchannel; empty before the begin."""
        return self._vchannel

    @property
    def keepalive_s(self) -> float:
        """Its lifetime after its newest append, as granted by the server; 0 before the begin."""
        return self._context.keepalive_ms / 1000 if self._context else 0.0

    @property
    def committing(self) -> bool:
        """Whether a commit was sent, so that only its answer can tell the outcome."""
        return self._committing

    @property
    def cannot_commit(self) -> bool:
        """Whether an append of unknown outcome, or a failed `ack`, prevents the commit for good."""
        return self._unknown is not None

    async def begin(self) -> None:
        """Begin, once; `async with` does it. Raises InvalidArgument for a bad keepalive."""
        if self._context is not None:
            raise BadTransaction("the transaction has already begun; make another one")
        self._shards = await self._resolve()
        (self._vchannel,) = self._shards.vchannels
        header = begin_header(self._keepalive_ms)
        kind = Kind(type=MessageType.BEGIN_TXN, version=_VERSION, header=header)
        begin = Message(b"", None, self._begins_with, **kind)
        try:
            _, context = await self._appends.of_txns.step(
                self._vchannel, begin, "", self._deadline_s
            )
        except OutcomeUnknown as error:
            # Whether it has begun does not matter: nothing is in it, and it expires.
            raise DeadlineExceeded(
                f"{self._vchannel}: the begin of a transaction was not answered; nothing of it was"
                f" written: {error}"
            ) from error
        opened = TxnContext.decode(context)
        if not opened.txn_id:
            raise ProtocolBroken(f"{self._vchannel}: the answer to a begin has no transaction ID")
        self._context = opened
        self._name = TXN.encode(self._context)

    async def append(  # noqa: PLR0913 - as of `Client.append`
        self,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message, an insert unless `type` says otherwise; durable, not yet visible.

        It is read with the tick of the commit. After OutcomeUnknown, or when an append is
        cancelled, the transaction cannot be committed any more. See also `Client.append`.
        """
        message = Message(payload, key, properties, **kind)
        times = delivery_properties([message], deliver_at, ttl_s)
        return (await self._append_to(partition, (message,), times, deadline_s))[0]

    async def append_messages(
        self,
        messages: Iterable[Message],
        *,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Append many messages; raises the first error when any failed."""
        every = tuple(messages)
        times = delivery_properties(every, deliver_at, ttl_s)
        return await self._append_to(partition, every, times, deadline_s)

    async def _append_to(
        self, partition: str | None, every: Sequence[Message], times: bytes, within_s: float | None
    ) -> list[Appended]:
        if partition is None:
            return await self.append_rows(every, times, within_s)
        check_rows(every)
        return await self._into(partition, lambda it: self.append_rows(every, it + times, within_s))

    async def append_rows(
        self, messages: Sequence[Message], named: bytes, deadline_s: float | None = None
    ) -> list[Appended]:
        """As `append_messages`; `named` is the property that names the partition of the rows."""
        return _all_landed(await self._append(messages, deadline_s, named))

    async def append_batch(  # noqa: PLR0913 - as of `Client.append`
        self,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Append messages as one batch, as `Client.append_batch`; stored whole or not at all.

        Sent again when an answer is lost, and stored once. Read with the tick of the commit.
        """
        within_s = deadline_s or self._deadline_s
        plain = Message(b"", properties=properties)
        self._shards.check_takes(plain.type)
        shared = batch_header(self._vchannel, plain, within_s, txn=self._open_name())
        shared = in_partition(shared, delivery_properties([plain], deliver_at, ttl_s))
        if partition is not None:
            appending = self._appends.batch_into(partition, shared, payloads, keys)
            return await self._sent(len(payloads), appending)
        return await self._sent(len(payloads), self._appends.batch(shared, payloads, keys))

    async def append_arrow(
        self,
        rows: "pa.RecordBatch | pa.Table",
        *,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Append rows, as `Client.append_arrow`, all on the vchannel of the transaction.

        When it fails, some of the rows may be in the transaction: roll back.
        """
        self._open_name()
        within_s, shards = deadline_s or self._deadline_s, Shards(None, (self._vchannel,))
        times = delivery_properties((), None, ttl_s)

        async def append(named: bytes = b"") -> list[AppendedBatch]:
            pieces = split_rows(rows, shards, None, self._appends.compression)
            return await self.append_pieces(pieces, properties, within_s, named + times)

        return await (append() if partition is None else self._into(partition, append))

    async def append_pieces(
        self,
        pieces: Iterable[Piece],
        properties: Mapping[str, str],
        deadline_s: float,
        named: bytes = b"",
    ) -> list[AppendedBatch]:
        """Append rows that `split_rows` has split for this vchannel; `named`: see `append_rows`."""
        appending = self._appends.rows(
            pieces, properties, deadline_s, txn=self._open_name(), named=named
        )
        return await self._sent(1, appending)

    async def ack(
        self,
        batch: LeasedBatch,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Acknowledge messages of a group, all that are left or these, with the commit.

        From now on the transaction holds them, and their lease does not count for them: they are
        acknowledged when it commits, and delivered again when it does not. BadTransaction for
        messages of another vchannel: use `Client.staged`. LeaseLost when the lease is over. After
        any error the transaction cannot be committed.
        """
        self._open_name()
        if batch.vchannel != self._vchannel:
            raise BadTransaction(
                f"the messages are of {batch.vchannel}, the transaction is on {self._vchannel}:"
                " acknowledge them in a staged batch, Client.staged"
            )
        try:
            await self._sent(1, batch.ack_in(self.id, messages, deadline_s or self._deadline_s))
        except TidemarkError as error:
            self._unknown = self._unknown or error
            raise

    async def commit(self) -> Appended:
        """Make all of it visible; returns where the commit is. Leaving the block does it.

        Raises OutcomeUnknown when it may or may not be committed, TransactionExpired when it is
        not and never will be.
        """
        if self._unknown is not None:
            # What it holds, or should hold, is unknown or missing: nothing of it may be read.
            with suppress(TidemarkError):  # without an answer it expires
                await self.rollback()
            raise self._unknown
        return await self._end(MessageType.COMMIT_TXN, self._deadline_s)

    def check_whole(self) -> None:
        """Raise what prevents the commit: OutcomeUnknown, BadTransaction, or what `ack` raised."""
        self._open_name()
        if self._under_way:
            raise BadTransaction(
                f"{self._under_way} appends are not answered yet; await them first"
            )
        if self._unknown is not None:
            raise self._unknown

    def seal(self) -> None:
        """Refuse further appends; another program commits it. Raises as `check_whole`."""
        self.check_whole()
        self._ended = True

    async def rollback(self) -> None:
        """Discard all of it."""
        await self._end(MessageType.ROLLBACK_TXN, min(ROLLBACK_S, self._deadline_s))

    async def __aenter__(self) -> "Txn":
        await self.begin()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None:
            await self.commit()
            return
        # Shielded, so that a cancelled program does not leave it open until it expires.
        with anyio.CancelScope(shield=True):
            try:
                await self.rollback()
            except TidemarkError:
                return  # it expires; the exception that led here is the one to raise

    def _into(self, partition: str, append: Callable[[bytes], Awaitable[T]]) -> Awaitable[T]:
        self._open_name()
        return self._appends.partitions.into(self._vchannel, partition, append)

    async def _append(
        self, messages: Sequence[Message], deadline_s: float | None, named: bytes = b""
    ) -> list[Appended | TidemarkError]:
        name, within_s = self._open_name(), deadline_s or self._deadline_s
        for message in messages:
            self._shards.check_takes(message.type)
        bodies = self._appends.of_txns.bodies(self._vchannel, messages, name, within_s, named)
        results = await self._sent(len(messages), bodies)
        # These errors were returned, not raised, so `_sent` has not seen them.
        self._doubt(results)
        return results

    async def _sent(self, count: int, sending: Awaitable[T]) -> T:
        """Await an append; remembers an unknown outcome, which prevents the commit."""
        self._under_way += count
        try:
            return await sending
        except asyncio.CancelledError:
            self._unknown = self._unknown or OutcomeUnknown(
                "an append of the transaction was cancelled; it may have been written"
            )
            raise
        except AppendsFailed as error:
            self._doubt(error.results)
            raise
        except TidemarkError as error:
            self._doubt([error])
            raise
        finally:
            self._under_way -= count

    def _doubt(self, results: Iterable[object]) -> None:
        for each in results:
            if isinstance(each, OutcomeUnknown):
                self._unknown = each

    async def _end(self, kind: MessageType, deadline_s: float) -> Appended:
        name = self._open_name()
        # A rollback need not wait for them: nothing of it will be read.
        if self._under_way and kind == MessageType.COMMIT_TXN:
            raise BadTransaction(
                f"{self._under_way} appends are not answered yet; await them first"
            )
        # Before the wait: nothing may be appended behind the commit.
        self._ended = True
        self._committing = kind == MessageType.COMMIT_TXN
        end = Message(b"", type=kind, version=_VERSION)
        landed, _ = await self._appends.of_txns.step(
            self._vchannel, end, name, deadline_s, commits=self._committing
        )
        return landed

    def _open_name(self) -> str:
        """The encoded transaction that messages carry. Raises BadTransaction."""
        if self._context is None or self._ended:
            raise BadTransaction(
                "the transaction has ended" if self._ended else "the transaction has not begun"
            )
        return self._name


def _all_landed(results: Sequence[Appended | TidemarkError]) -> list[Appended]:
    landed = [it for it in results if isinstance(it, Appended)]
    if len(landed) < len(results):
        raise next(it for it in results if isinstance(it, TidemarkError))
    return landed
