"""Appends of transactions: begins and ends one by one, bodies in batches where possible.

Bodies that are given together keep their order. Batches are numbered, so one whose answer was lost
is sent again and stored once. A body that goes on its own has no number and is sent once, so its
outcome may stay unknown.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from broker.client.append.append_results import Offered, abandon, outcome_of, result_of
from broker.client.append.batch_producer import BatchProducer
from broker.client.append.named_partitions import in_partitions
from broker.client.append.outbox import PendingAppend
from broker.client.append.outgoing_batch import BatchHeader, message_results
from broker.client.append.prepare import (
    Prepared,
    encoded,
    is_plain,
    plain_properties,
    prepare,
)
from broker.client.append.producer import AnswerFuture, Producer
from broker.client.append.producer_pool import ProducerPool
from broker.client.errors import OutcomeUnknown, TidemarkError, TransactionExpired
from broker.client.message import Appended, Message, key_bytes
from broker.model.ids import MessageId, VChannelName

WHOLE_BYTES_MAX = 1024 * 1024
"""Payloads, keys and properties of a transaction that goes in one batch; a larger one is sent in
steps. The server counts what all messages share once for each of them; this leaves room for that.
"""
BODIES_MAX = 4096
"""In one batch made of single bodies; a batch that the program made may be larger."""


@dataclass(slots=True)
class _Piece:
    """Consecutive bodies that go in one batch, or a single body that goes on its own."""

    how: BatchHeader | bytes
    payloads: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    size_bytes: int = 0


class TxnAppends:
    """For all transactions of one client."""

    def __init__(
        self,
        single: ProducerPool[Producer],
        batches: ProducerPool[BatchProducer],
        now_s: Callable[[], float],
        batch_bytes_max: int,
    ) -> None:
        self._single = single
        self._batches = batches
        self._now_s = now_s
        self._batch_bytes_max = batch_bytes_max

    async def step(
        self,
        vchannel: VChannelName,
        message: Message,
        txn: str,
        deadline_s: float,
        *,
        commits: bool = False,
    ) -> tuple[Appended, bytes]:
        """Append a begin or an end; returns its result and the transaction's context.

        `commits`: it is the commit. When a repeated commit is refused because the transaction is
        unknown, the first one may have committed it and its answer was lost: OutcomeUnknown.
        """
        frame = encoded(message, vchannel, txn)
        producer = self._single.of(vchannel)
        pending = await producer.offer_when_room(frame, self._now_s() + deadline_s)
        try:
            where = await result_of(vchannel, pending)
        except TransactionExpired as error:
            if commits and pending.unanswered:
                cause = f"a commit on {vchannel} was repeated, and its transaction is unknown"
                raise OutcomeUnknown(f"{cause}; the first one may have committed it") from error
            raise
        return where, pending.waiter.result().txn_context

    async def whole(
        self,
        vchannel: VChannelName,
        messages: Sequence[Message],
        deadline_s: float,
        named: bytes = b"",
    ) -> list[Appended] | None:
        """Append a transaction in one batch: begin, bodies and commit are stored together.

        `named`, here and below: the property that names the partition of the rows.

        Results have the tick of the commit. A repeat after a lost answer gets the first answer.
        Raises TransactionExpired when nothing of it was or will be read, so that all of it may be
        tried again; OutcomeUnknown when it may have been committed. None, and nothing was sent: not
        with these messages or this server.
        """
        producer = self._batches.of(vchannel)
        takes_whole, kinds = producer.takes_whole, {each.type for each in messages}
        if (
            not takes_whole
            or len(kinds) > 1
            or len(messages) > BODIES_MAX
            or not all(map(is_plain, messages))
        ):
            return None
        # Not `prepare`, whose other checks these messages pass: they are plain and small. A
        # transaction of a hundred would spend half of its time there.
        own = [plain_properties(it) if (it := each.properties) else b"" for each in messages]
        payloads = [each.payload for each in messages]
        keys = [None if each.key is None else key_bytes(each.key) for each in messages]
        size = sum(map(len, payloads)) + sum(map(len, own)) + sum([len(it) for it in keys if it])
        if size > WHOLE_BYTES_MAX:
            return None
        header = BatchHeader(vchannel, int(messages[0].type), b"", deadline_s, reserved=named)
        deadline_at_s = self._now_s() + deadline_s
        if not producer.has_room:
            await producer.wait_for_room(deadline_at_s)
            # The channel may have moved to a server of an earlier release during the wait.
            if not producer.takes_whole:
                return None
        pending = producer.offer_whole(header, payloads, keys, own, deadline_at_s)
        first = await result_of(vchannel, pending)
        _, start, tick, confirmed, durability = first
        return [
            Appended(vchannel, MessageId(start + at), tick, confirmed, durability)
            for at in range(len(messages))
        ]

    async def bodies(
        self,
        vchannel: VChannelName,
        messages: Iterable[Message],
        txn: str,
        deadline_s: float,
        named: bytes = b"",
    ) -> list[Appended | TidemarkError]:
        """The outcome of each body, in the order given, which is also their order in the log.

        Raises when one of them fails its checks; then none was sent.
        """
        work = [prepare(each, vchannel, deadline_s, txn=txn) for each in messages]
        if named:
            work = in_partitions(work, named)
        deadline_at_s = self._now_s() + deadline_s
        # Gathered, so that tasks which append to the transaction one by one share batches.
        if len(work) == 1 and isinstance(work[0][2], BatchHeader):
            return [await self._gathered(work[0][0], work[0][2], deadline_at_s)]
        pieces = list(self._pieces(work))
        offered: list[Offered | TidemarkError] = []
        try:
            for at, piece in enumerate(pieces):
                if at and type(piece.how) is not type(pieces[at - 1].how):
                    # The two forms go over different streams, so the second could overtake the
                    # first: wait for its answer.
                    await outcome_of(offered[-1])
                try:
                    offered.append(await self._offered(vchannel, piece, deadline_at_s))
                except TidemarkError as error:
                    offered.append(error)
            answers = [await outcome_of(it) for it in offered]
        except asyncio.CancelledError:
            abandon(offered)
            raise
        results: list[Appended | TidemarkError] = []
        for piece, it, answer in zip(pieces, offered, answers, strict=True):
            results += _of_each(vchannel, piece, it, answer)
        return results

    async def _gathered(
        self, message: Message, how: BatchHeader, deadline_at_s: float
    ) -> Appended | TidemarkError:
        """Gather one body with those that other tasks append to the same transaction."""
        producer = self._batches.of(how.vchannel)
        try:
            return await (await producer.gather_when_room(how, message, deadline_at_s))
        except TidemarkError as error:
            return error

    def _pieces(self, work: Iterable[Prepared]) -> Iterator[_Piece]:
        piece: _Piece | None = None
        for message, _, how in work:
            key = None if message.key is None else key_bytes(message.key)
            size = len(message.payload) + len(key or b"")
            fits = (
                piece is not None
                and isinstance(how, BatchHeader)
                and how == piece.how
                and len(piece.payloads) < BODIES_MAX
                and piece.size_bytes + size <= self._batch_bytes_max
            )
            if piece is not None and not fits:
                yield piece
            if piece is None or not fits:
                piece = _Piece(how)
            piece.payloads.append(message.payload)
            piece.keys.append(key)
            piece.size_bytes += size
        if piece is not None:
            yield piece

    async def _offered(
        self, vchannel: VChannelName, piece: _Piece, deadline_at_s: float
    ) -> tuple[VChannelName, PendingAppend[AnswerFuture]]:
        if isinstance(piece.how, bytes):
            single = self._single.of(vchannel)
            # It has no number, so the server would store a repeat as another body.
            pending = await single.offer_when_room(piece.how, deadline_at_s, once=True)
        else:
            producer = self._batches.of(vchannel)
            if not producer.has_room:
                await producer.wait_for_room(deadline_at_s)
            pending = producer.offer_batch(piece.how, piece.payloads, piece.keys, deadline_at_s)
        return vchannel, pending


def _of_each(
    vchannel: VChannelName,
    piece: _Piece,
    offered: Offered | TidemarkError,
    answer: Appended | TidemarkError,
) -> Sequence[Appended | TidemarkError]:
    count = len(piece.payloads)
    if isinstance(answer, TidemarkError):
        return [answer] * count
    assert isinstance(offered, tuple)
    return message_results(vchannel, offered[1].waiter.result(), count)
