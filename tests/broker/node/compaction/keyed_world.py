"""A node with a compacted collection, and the naive model: a list of what readers were to get."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.codec.stored_headers import StoredHeaders
from broker.core.compaction.compaction_due import CompactionShares
from broker.model.batch import BatchKeys, BatchPart, Codec, NewBatch
from broker.model.ids import CollectionId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.record import RecordSlice, RecordSliceInTxn
from broker.model.retention.compaction import Compaction
from broker.model.txn import TxnContext
from broker.node.scanner_messages import Delivery
from broker.node.state.node_limits import NodeLimits
from broker.ports.row_schemas import NoRowSchemas
from schemas.packing import pack
from tests.broker.node.world import PCHANNEL, Reader, World, message

LIMITS = NodeLimits(
    retention_period_s=1.0,
    tail_age_s=0.5,
    snapshot_records=1,
    snapshot_look_s=0.2,
    compaction=CompactionShares(bytes_min=900, dirty_percent=30),
)
VCHANNEL, OTHER = f"{PCHANNEL}_7v0", f"{PCHANNEL}_9v0"
HEADERS = StoredHeaders()


class CompactedCatalog(NoRowSchemas):
    """A catalog in which collection 7 is compacted."""

    def __init__(self, **policy: int) -> None:
        self.policies = {CollectionId(7): Compaction(**policy)}

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        return self.policies


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its reader gets it; `payload` empty: a tombstone."""

    id: int
    tick: int
    key: bytes | None
    payload: bytes


@dataclass(slots=True)
class OpenTxn:
    """A transaction and what was appended in it, with its ids."""

    context: TxnContext
    bodies: list[tuple[int, bytes | None, bytes]] = field(default_factory=list)


def keyed(
    rows: Sequence[tuple[bytes | None, bytes]],
    txn: TxnContext | None = None,
    codec: Codec = Codec.NONE,
    vchannel: str = VCHANNEL,
    properties: bytes = b"",
) -> NewBatch:
    """A batch of messages with these keys and payloads."""
    keys = BatchKeys(
        tuple([0 if key is None else len(key) + 1 for key, _ in rows]),
        b"".join([key or b"" for key, _ in rows]),
    )
    plain = b"".join([payload for _, payload in rows])
    body = plain if codec is Codec.NONE else pack(codec, plain)
    part = BatchPart(properties, codec, keys)
    sizes = tuple([len(payload) for _, payload in rows])
    return NewBatch(vchannel, 2, body, len(plain), txn=txn, sizes=sizes, part=part)


class Keyed:
    """Appends to a node and remembers what readers are to get, in their order."""

    def __init__(self) -> None:
        self.world: World
        self.delivered: list[Sent] = []
        self.open: list[OpenTxn] = []

    async def append(
        self, rows: Sequence[tuple[bytes | None, bytes]], codec: Codec = Codec.NONE
    ) -> None:
        (outcome,) = await self.world.append(keyed(rows, codec=codec))
        assert isinstance(outcome, Appended), outcome
        self.delivered += [
            Sent(outcome.id + at, outcome.tick + at, *row) for at, row in enumerate(rows)
        ]

    async def begin(self) -> None:
        begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(0, 10**6))  # type: ignore[arg-type]
        (begun,) = await self.world.append(begin)
        assert isinstance(begun, AppendedInTxn), begun
        self.open.append(OpenTxn(begun.txn))

    async def append_in(self, txn: OpenTxn, rows: Sequence[tuple[bytes | None, bytes]]) -> None:
        (outcome,) = await self.world.append(keyed(rows, txn.context))
        assert isinstance(outcome, Appended), outcome
        txn.bodies += [(outcome.id + at, *row) for at, row in enumerate(rows)]

    async def end(self, txn: OpenTxn, *, commit: bool) -> None:
        kind = MessageType.COMMIT_TXN if commit else MessageType.ROLLBACK_TXN
        (outcome,) = await self.world.append(message(kind=kind, txn=txn.context))
        assert isinstance(outcome, Appended), outcome
        self.open.remove(txn)
        if commit:
            self.delivered += [
                Sent(id, outcome.tick, key, payload) for id, key, payload in txn.bodies
            ]

    def newest(self, upto: int) -> dict[bytes, Sent]:
        """By key the newest message up to a tick."""
        return {it.key: it for it in self.delivered if it.key is not None and it.tick <= upto}

    def state(self, sent: Sequence[Sent] | None = None) -> dict[bytes, bytes]:
        """What a table has that applies the messages in order."""
        table: dict[bytes, bytes] = {}
        for it in self.delivered if sent is None else sent:
            if it.key is None:
                continue
            if it.payload:
                table[it.key] = it.payload
            else:
                table.pop(it.key, None)
        return table


class KeyedReader(Reader):
    """A reader that keeps the messages with their keys."""

    def __init__(self, world: World, vchannel: str = VCHANNEL) -> None:
        super().__init__(world, vchannel)
        self.got: list[Sent] = []

    def _take(self, delivery: Delivery) -> None:
        super()._take(delivery)
        for item in delivery.items:
            if isinstance(item, RecordSlice) and item.record.batch is not None:
                self.got += _each(item)

    async def read_all(self, bytes_max: int = 1 << 20) -> list[Sent]:
        """What it has got at the end of the log."""
        await self.read_until((await self._world.offsets()).next_id - 1, bytes_max)
        return self.got


def _each(part: RecordSlice) -> list[Sent]:
    whole = HEADERS.unpacked(part.record)
    assert whole is not None
    assert whole.batch is not None
    keys = whole.batch.keys.split(len(whole.sizes))
    in_txn = isinstance(part, RecordSliceInTxn)
    sent = [
        Sent(it.id, part.first_tick if in_txn else it.tick, key, it.body)
        for it, key in zip(whole.messages(), keys, strict=True)
    ]
    return sent[part.first : part.end]


async def everything(world: World, bytes_max: int = 1 << 20) -> list[Sent]:
    """What a new reader gets from the beginning."""
    return await KeyedReader(world).read_all(bytes_max)


def statistics(world: World) -> dict[str, int | float | str]:
    """Of the Compactor."""
    (found,) = [it.extra for it in world.system.statistics() if it.path == "/root/node/compactor"]
    return dict(found)
