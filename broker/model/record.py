"""A record: the unit that a log stores, messages of one vchannel and one type."""

from collections.abc import Iterator

from broker.model.batch import BatchPart, Codec
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.measured import RecordHead
from broker.model.message import Delivered, MessageType
from broker.model.txn import TxnPart
from broker.value import value


@value
class Record:
    """`len(sizes)` messages with contiguous ids and ticks; atomic with respect to crashes.

    Message i has id `base_id + i`, tick `base_tick + i` and `sizes[i]` bytes of `body`.
    `last_confirmed_id` equal to `base_id`: each message confirms its own id; a smaller value holds
    for all messages. `txn`: the transaction of all messages. `batch`: the body is payloads,
    perhaps compressed, and not Milvus's stored form. A record with both is a batch of bodies of
    the transaction.
    """

    term: Term
    base_id: MessageId
    base_tick: TimeTick
    last_confirmed_id: MessageId
    kind: int
    vchannel: str
    sizes: tuple[int, ...]
    body: bytes
    txn: TxnPart | None = None
    batch: BatchPart | None = None

    @property
    def next_id(self) -> MessageId:
        return MessageId(self.base_id + len(self.sizes))

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.base_tick + len(self.sizes) - 1)

    @property
    def body_bytes(self) -> int:
        """The size that counts for a transaction: uncompressed."""
        if self.batch is None:
            return len(self.body)
        packed = self.batch.codec in (Codec.LZ4, Codec.ZSTD)
        payloads = sum(self.sizes) if packed else len(self.body)
        return payloads + self.batch.shared_bytes

    @property
    def adds_up(self) -> bool:
        """Whether the sizes match the body, as far as that can be checked without decompression."""
        if self.batch is not None and self.batch.codec is not Codec.NONE:
            return bool(self.sizes)
        return bool(self.sizes) and sum(self.sizes) == len(self.body)

    def last_confirmed_of(self, index: int) -> MessageId:
        """The last confirmed id of message `index`."""
        if self.last_confirmed_id == self.base_id:
            return MessageId(self.base_id + index)
        return self.last_confirmed_id

    def messages(self, first: int = 0) -> Iterator[Delivered]:
        """The messages from index `first` on, each with its own slice of the body."""
        confirms_itself = self.last_confirmed_id == self.base_id
        start = sum(self.sizes[:first])
        for index in range(first, len(self.sizes)):
            end = start + self.sizes[index]
            own_id = MessageId(self.base_id + index)
            yield Delivered(
                id=own_id,
                tick=TimeTick(self.base_tick + index),
                last_confirmed_id=own_id if confirms_itself else self.last_confirmed_id,
                term=self.term,
                body=self.body[start:end],
            )
            start = end


@value
class RecordSlice:
    """The messages [first, end) of a record, delivered in one piece."""

    record: Record
    first: int
    end: int

    @property
    def first_tick(self) -> TimeTick:
        return TimeTick(self.record.base_tick + self.first)

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.record.base_tick + self.end - 1)

    @property
    def batch_tick(self) -> TimeTick:
        """The first tick of the whole batch, however it is cut."""
        return self.record.base_tick


@value
class RecordSliceInTxn(RecordSlice):
    """Messages of a committed transaction: all have the commit's tick and last confirmed id."""

    tick: TimeTick
    last_confirmed_id: MessageId

    @property
    def first_tick(self) -> TimeTick:
        return self.tick

    @property
    def last_tick(self) -> TimeTick:
        return self.tick

    @property
    def batch_tick(self) -> TimeTick:
        return self.tick


def head_of(record: Record) -> RecordHead:
    """The head of a record: everything but its contents."""
    tells = record.batch is None and (record.txn is None or record.kind == MessageType.COMMIT_TXN)
    return RecordHead(
        record.base_id,
        record.base_tick,
        record.last_confirmed_id,
        len(record.sizes),
        record.kind,
        record.vchannel,
        len(record.body),
        record.txn,
        record.sizes if tells else (),
        record.body if tells else b"",
    )
