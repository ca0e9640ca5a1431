"""What transactions append: their begins and ends one by one, their bodies in batches where it may.

It owns the form that each body goes in, and the order of those that are given together. Batches are
numbered, so one whose answer was lost is sent again and stored once; a body that goes by itself is
sent once, and its outcome may stay unknown.
Next: broker/client/append/outgoing_batch.py
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from broker.client.append.append_results import Offered, abandon, landed, landed_or_failed
from broker.client.append.batch_producer import BatchHeader, BatchProducer, landings
from broker.client.append.by_pchannel import ByPChannel
from broker.client.append.outbox import PendingAppend
from broker.client.append.outgoing_batch import Ready, encoded, ready
from broker.client.append.producer import Producer, Waiter
from broker.client.errors import OutcomeUnknown, TidemarkError, TransactionExpired
from broker.client.message import Appended, Message, key_bytes
from broker.model.ids import VChannelName

BODIES_MAX = 4096
"""In one batch that is made of single bodies; a program's own may be larger."""


@dataclass(slots=True)
class _Piece:
    """Bodies that follow each other and go out together, or one that goes by itself."""

    how: BatchHeader | bytes
    payloads: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    size_bytes: int = 0


class TxnAppends:
    """For all transactions of one client."""

    def __init__(
        self,
        single: ByPChannel[Producer],
        batches: ByPChannel[BatchProducer],
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
        """A begin or an end of a transaction, and the transaction as the server names it.

        `commits`: it is the end that counts. A server that does not know the transaction any more
        when it is sent again may have forgotten it because the first one was heard: OutcomeUnknown.
        """
        frame = encoded(message, vchannel, txn)
        producer = self._single.of(vchannel)
        pending = await producer.offer_when_room(frame, self._now_s() + deadline_s)
        try:
            where = await landed(vchannel, pending)
        except TransactionExpired as error:
            if commits and pending.unanswered:
                cause = f"a commit on {vchannel} was sent again, and its transaction is gone"
                raise OutcomeUnknown(f"{cause}; the first one may have been heard") from error
            raise
        return where, pending.waiter.result().txn_context

    async def bodies(
        self, vchannel: VChannelName, messages: Iterable[Message], txn: str, deadline_s: float
    ) -> list[Appended | TidemarkError]:
        """What became of each body, in their order, which is also the order they have in the log.

        Raises what refuses one of them here, and then none was sent.
        """
        work = [ready(each, vchannel, deadline_s, txn=txn) for each in messages]
        deadline_at_s = self._now_s() + deadline_s
        if len(work) == 1 and isinstance(work[0][2], BatchHeader):
            return [await self._gathered(work[0][0], work[0][2], deadline_at_s)]
        pieces = list(self._pieces(work))
        offered: list[Offered | TidemarkError] = []
        try:
            for at, piece in enumerate(pieces):
                if at and type(piece.how) is not type(pieces[at - 1].how):
                    # The two forms have streams of their own, on which one may overtake the other.
                    await landed_or_failed(offered[-1])
                try:
                    offered.append(await self._offered(vchannel, piece, deadline_at_s))
                except TidemarkError as error:
                    offered.append(error)
            answers = [await landed_or_failed(it) for it in offered]
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
        """In a batch with those that others append to the same transaction meanwhile."""
        producer = self._batches.of(how.vchannel)
        try:
            if not producer.has_room:
                await producer.wait_for_room(deadline_at_s)
            return await producer.gather(how, message)
        except TidemarkError as error:
            return error

    def _pieces(self, work: Iterable[Ready]) -> Iterator[_Piece]:
        piece: _Piece | None = None
        for message, _, how in work:
            size = len(message.payload)
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
            piece.keys.append(None if message.key is None else key_bytes(message.key))
            piece.size_bytes += size
        if piece is not None:
            yield piece

    async def _offered(
        self, vchannel: VChannelName, piece: _Piece, deadline_at_s: float
    ) -> tuple[VChannelName, PendingAppend[Waiter]]:
        if isinstance(piece.how, bytes):
            single = self._single.of(vchannel)
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
    return landings(vchannel, offered[1].waiter.result(), count)
