"""What segments hold is read once, until they are written anew, removed, or too many."""

from dataclasses import dataclass, field

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.retention.dead import Contents, VChannelPart
from broker.model.retention.policy import SealedSegment
from broker.node.state.segment_contents import SegmentContents
from broker.ports.wal import LogBounds


@dataclass
class Sealed:
    next_id: MessageId
    size_bytes: int
    last_tick: TimeTick = TimeTick(1)


@dataclass
class LogFake:
    """Counts what is read; each segment holds three vchannels."""

    sealed: list[Sealed] = field(default_factory=list)
    active_bytes: int = 0
    next_id: int = 1000
    reads: list[int] = field(default_factory=list)

    def segments(self) -> list[Sealed]:
        return self.sealed

    def bounds(self) -> LogBounds:
        size = self.active_bytes + sum(it.size_bytes for it in self.sealed)
        first, last = MessageId(1), TimeTick(9)
        return LogBounds(first, MessageId(self.next_id), last, Term(1), size)

    async def contents(self, segment: SealedSegment | None) -> Contents:
        self.reads.append(0 if segment is None else segment.next_id)
        part = VChannelPart(1, MessageId(1), MessageId(2))
        return dict.fromkeys("abc", part)


async def test_a_sealed_segment_is_read_again_only_when_it_is_another_edition() -> None:
    log, known = LogFake([Sealed(MessageId(10), 100)]), SegmentContents()
    for _ in range(3):
        await known.sealed(log, log.sealed[0])  # type: ignore[arg-type]
    assert log.reads == [10]
    log.sealed[0].size_bytes = 50
    await known.sealed(log, log.sealed[0])  # type: ignore[arg-type]
    assert log.reads == [10, 10]


async def test_a_bounded_number_of_parts_is_remembered() -> None:
    log = LogFake([Sealed(MessageId(it), 100) for it in range(10, 15)])
    known = SegmentContents(parts_max=7)
    for segment in log.sealed:
        await known.sealed(log, segment)  # type: ignore[arg-type]
    assert sum(len(it) for _, it in known._known.values()) <= 7
    log.sealed = log.sealed[-1:]
    await known.sealed(log, Sealed(MessageId(20), 5))  # type: ignore[arg-type]
    assert set(known._known) == {14, 20}, "what was removed is forgotten"


async def test_the_active_segment_is_read_again_when_it_has_grown_enough() -> None:
    log, known = LogFake(active_bytes=100), SegmentContents()
    await known.active(log, 50)  # type: ignore[arg-type]
    log.active_bytes = 149
    await known.active(log, 50)  # type: ignore[arg-type]
    assert log.reads == [0]
    log.active_bytes = 150
    await known.active(log, 50)  # type: ignore[arg-type]
    assert log.reads == [0, 0]
    log.sealed.append(Sealed(MessageId(5), 150))
    log.active_bytes = 150
    await known.active(log, 50)  # type: ignore[arg-type]
    assert log.reads == [0, 0, 0], "another segment is active"


async def test_the_active_segment_is_read_again_for_ids_that_it_did_not_have() -> None:
    log, known = LogFake(active_bytes=100, next_id=20), SegmentContents()
    for until_id in (10, 20):
        await known.active_below(log, MessageId(until_id))  # type: ignore[arg-type]
    assert log.reads == [0]
    log.next_id = 30
    await known.active_below(log, MessageId(20))  # type: ignore[arg-type]
    assert log.reads == [0], "what was appended since lies behind"
    await known.active_below(log, MessageId(21))  # type: ignore[arg-type]
    assert log.reads == [0, 0]
    log.sealed.append(Sealed(MessageId(30), 100))
    await known.active_below(log, MessageId(30))  # type: ignore[arg-type]
    assert log.reads == [0, 0, 0], "another segment is active"
