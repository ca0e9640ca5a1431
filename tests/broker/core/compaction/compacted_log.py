"""A log that is compacted, over the real writer, and the naive model: a list of messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.core.compaction.key_scan import KeyScan, Target
from broker.core.compaction.segment_judge import Ends, Judgement, SegmentJudge
from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, deliver
from broker.model.batch import BatchKeys, BatchPart, NewBatch
from broker.model.ids import MessageId, TimeTick
from broker.model.message import Appended
from broker.model.position import ReadPosition
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.model.txn import TxnContext
from tests.broker.core.txn.test_transactions import V, Writer, of

Row = tuple[bytes | None, bytes]
ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its reader gets it."""

    id: int
    tick: int
    key: bytes | None
    payload: bytes


def no_key(stored: bytes) -> tuple[bytes | None, bool]:
    return None, not stored


def batch(rows: list[Row], txn: TxnContext | None = None, vchannel: str = V[0]) -> NewBatch:
    keys = BatchKeys(
        tuple([0 if key is None else len(key) + 1 for key, _ in rows]),
        b"".join([key or b"" for key, _ in rows]),
    )
    body = b"".join([payload for _, payload in rows])
    sizes, part = tuple([len(it) for _, it in rows]), BatchPart(b"", keys=keys)
    return NewBatch(vchannel, 2, body, len(body), txn=txn, sizes=sizes, part=part)


@dataclass(slots=True)
class CompactedLog:
    """`records`: what is left of what `writer` has stored, in `segments` by their ends."""

    writer: Writer = field(default_factory=Writer)
    delivered: list[Sent] = field(default_factory=list)
    bodies: dict[TxnContext, list[tuple[int, Row]]] = field(default_factory=dict)
    taken: int = 0
    records: list[Record] = field(default_factory=list)
    ends: list[MessageId] = field(default_factory=list)
    clean: TimeTick = TimeTick(0)
    uptos: dict[str, TimeTick] = field(default_factory=dict)

    def append(self, rows: list[Row], txn: TxnContext | None = None) -> None:
        outcome = self.writer.one(batch(rows, txn))
        assert isinstance(outcome, Appended), outcome
        if txn is None:
            self.delivered += [
                Sent(outcome.id + at, outcome.tick + at, *row) for at, row in enumerate(rows)
            ]
        else:
            self.bodies[txn] += [(outcome.id + at, row) for at, row in enumerate(rows)]

    def begin(self) -> None:
        self.bodies[self.writer.begin()] = []

    def end(self, txn: TxnContext, *, commit: bool) -> None:
        outcome = self.writer.one(of(txn, 901 if commit else 902))
        assert isinstance(outcome, Appended), outcome
        for id, row in self.bodies.pop(txn):
            if commit:
                self.delivered.append(Sent(id, outcome.tick, *row))

    def seal(self) -> None:
        new = self.writer.records[self.taken :]
        if new:
            self.records += new
            self.taken += len(new)
            self.ends.append(new[-1].next_id)

    def compact(self, bytes_max: int, horizon: TimeTick, crash_after: int = 1 << 30) -> bool:
        """One pass over the sealed segments; whether it came to its end."""
        if not self.records:
            return False
        target = {V[0]: Target(self.clean, horizon)}
        scan = KeyScan(target, self.records[-1].last_tick, bytes_max, no_key)
        for record in self.records:
            if not scan.take(record):
                break
        for record in self.records:
            scan.keep_shadowing(record)
        self.uptos[V[0]] = max(scan.upto, self.uptos.get(V[0], TimeTick(0)))
        bases = [MessageId(1), *self.ends[:-1]]
        ends: Ends = {}
        for number, (base, end) in enumerate(reversed(list(zip(bases, self.ends, strict=True)))):
            if number == crash_after:
                return False
            by = Judgement(lambda *_: False, lambda it: it, lambda _: False)
            judge = SegmentJudge(scan, base, ends, no_key, by)
            part = [it for it in self.records if base <= it.base_id < end]
            for record in part:
                judge.look(record)
            before = sum(len(it.sizes) for it in part if it.kind == 2)
            kept = [run for it in part for run in _left(judge, it)]
            assert judge.gone == before - sum(len(it.sizes) for it in kept if it.kind == 2)
            self.records = [
                *(it for it in self.records if it.base_id < base),
                *kept,
                *(it for it in self.records if it.base_id >= end),
            ]
        self.clean = scan.upto
        return True

    def everything(self) -> list[Record]:
        return [*self.records, *self.writer.records[self.taken :]]

    def newest(self, upto: int) -> dict[bytes, Sent]:
        return {it.key: it for it in self.delivered if it.key is not None and it.tick <= upto}


class LogReader:
    """Reads in small steps; `resume` makes it another connection."""

    def __init__(self, log: CompactedLog) -> None:
        self.log = log
        self.cursor = ReadPosition(MessageId(1), open_id=MessageId(1))
        self.got: list[Sent] = []
        self.resume()

    def resume(self) -> None:
        open_id = self.cursor.open_id or self.cursor.next_id
        self.assembler = Assembler(open_id, compacted=self.log.uptos)
        for record in self.log.everything():
            if open_id <= record.base_id < self.cursor.next_id:
                if record.txn is not None:
                    self.assembler.absorb(record)
                self.assembler.next_id = record.next_id
        self.assembler.next_id = self.cursor.next_id

    def step(self, bytes_max: int) -> bool:
        records = [it for it in self.log.everything() if it.next_id > self.cursor.next_id]
        selection = Selection(V[0], TimeTick(0), None)
        picked = deliver(records, self.cursor, selection, bytes_max, self.assembler)
        assert not picked.broken, picked.broken
        before, self.cursor = self.cursor, picked.cursor
        for item in picked.items:
            if isinstance(item, RecordSlice):
                self.got += _each(item)
        return picked.cursor != before

    def finish(self, bytes_max: int = ALL) -> list[Sent]:
        while self.step(bytes_max):
            pass
        return self.got


def _each(part: RecordSlice) -> list[Sent]:
    record = part.record
    assert record.batch is not None
    keys = record.batch.keys.split(len(record.sizes))
    in_txn = isinstance(part, RecordSliceInTxn)
    sent = [
        Sent(it.id, part.first_tick if in_txn else it.tick, key, it.body)
        for it, key in zip(record.messages(), keys, strict=True)
    ]
    return sent[part.first : part.end]


def _left(judge: SegmentJudge, record: Record) -> Sequence[Record]:
    left = judge.left(record)
    return (record,) if left is None else left
