"""A reader sees every message once, in order, wherever its streams are cut."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.read.decoder import Decoder, End, MessageFilter
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import MessageType
from broker.model.position import (
    DeliverFilter,
    DeliverPolicy,
    FromAll,
    StartFrom,
    TimeTickGt,
    TimeTickGte,
)
from schemas.wire import consume_message, consume_time_tick, message, scan_message
from tests.cases import cases

PCHANNEL = PChannelName("by-dev-rootcoord-dml_0")
VCHANNEL = VChannelName("by-dev-rootcoord-dml_0_1v0")
WANTED = MessageFilter(PCHANNEL, VCHANNEL)


@dataclass(frozen=True)
class Entry:
    """One thing in the log: `txn` 0 is none; an announced tick has no id of its own."""

    kind: int
    id: int
    tick: int
    last_confirmed_id: int
    txn: int = 0
    announced: bool = False


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Plain messages, interleaved transactions, written and announced ticks."""
    entries: list[Entry] = []
    open_txns: dict[int, int] = {}
    next_id, tick = 1, 1000
    steps = st.sampled_from(["plain", "plain", "begin", "body", "commit", "tick", "announce"])
    for number, step in enumerate(draw(st.lists(steps, max_size=40)), start=1):
        tick += draw(st.integers(1, 3))
        kind, txn = MessageType.INSERT, 0
        if step == "announce":
            confirmed = min([max(1, next_id - 1), *open_txns.values()])
            entries.append(Entry(MessageType.TIME_TICK, confirmed, tick, confirmed, announced=True))
            continue
        if step in ("body", "commit") and open_txns:
            txn = draw(st.sampled_from(sorted(open_txns)))
            if step == "commit":
                kind = MessageType.COMMIT_TXN
                del open_txns[txn]
        elif step == "begin":
            kind, txn = MessageType.BEGIN_TXN, number
            open_txns[txn] = next_id
        elif step == "tick":
            kind = MessageType.TIME_TICK
        entries.append(Entry(kind, next_id, tick, min([next_id, *open_txns.values()]), txn))
        next_id += 1
    return entries


def delivered(log: list[Entry], policy: DeliverPolicy, wanted: DeliverFilter | None) -> list[Entry]:
    """What a server sends: transactions whole and at their commit, everything else as it lies."""
    start = policy.id if isinstance(policy, StartFrom) else 0
    sent: list[Entry] = []
    open_txns: dict[int, list[Entry]] = {}
    for entry in log:
        if not entry.announced and entry.id < start:
            continue
        if entry.kind == MessageType.BEGIN_TXN:
            open_txns[entry.txn] = [entry]
        elif entry.kind == MessageType.COMMIT_TXN:
            parts = open_txns.pop(entry.txn, None)
            if parts is not None and passes(entry, wanted):
                sent += [
                    Entry(it.kind, it.id, entry.tick, entry.last_confirmed_id, it.txn)
                    for it in parts
                ]
                sent.append(entry)
        elif entry.txn:
            if entry.txn in open_txns:
                open_txns[entry.txn].append(entry)
        elif passes(entry, wanted):
            sent.append(entry)
    return sent


def passes(entry: Entry, wanted: DeliverFilter | None) -> bool:
    match wanted:
        case TimeTickGt(tick):
            return entry.tick > tick
        case TimeTickGte(tick):
            return entry.tick >= tick
        case _:
            return True


def frame(entry: Entry) -> bytes:
    if entry.kind == MessageType.TIME_TICK:
        return consume_time_tick(
            entry.id, entry.tick, entry.last_confirmed_id, 2, not entry.announced, 1
        )
    properties = {"_t": str(int(entry.kind)), "_v": "1", "_h": "", "_vc": VCHANNEL}
    if entry.txn:
        properties["_tx"] = "CAEQkE4="
    stored = restated(message(str(entry.id).encode(), properties))
    return consume_message(entry.id, entry.tick, entry.last_confirmed_id, 2, stored)


def restated(encoded: bytes) -> bytes:
    return scan_message(encoded, 0, len(encoded)).stored


def shown(log: list[Entry]) -> list[tuple[int, int]]:
    """Ids and ticks of what a reader that is never cut off gets to see."""
    return [
        (it.id, it.tick) for it in delivered(log, FromAll(), None) if it.kind == MessageType.INSERT
    ]


@settings(max_examples=cases(200), deadline=None)
@given(logs(), st.lists(st.integers(0, 12), max_size=8), st.integers(1, 5))
def test_a_reader_sees_every_message_once_wherever_the_streams_are_cut(
    log: list[Entry], cuts: list[int], chunk: int
) -> None:
    progress = VChannelProgress(FromAll())
    decoder = Decoder(WANTED, progress)
    seen: list[tuple[int, int]] = []
    for cut in [*cuts, len(log) * 2]:
        frames = [frame(it) for it in delivered(log, *progress.resume())][:cut]
        for at in range(0, len(frames), chunk):
            batch = decoder.feed(frames[at : at + chunk])
            seen += [(it.id, it.tick) for it in batch.messages] if batch else []
    assert seen == shown(log)


@settings(max_examples=cases(100), deadline=None)
@given(logs(), st.lists(st.integers(0, 12), max_size=4))
def test_the_closed_tick_never_runs_ahead_of_the_messages(
    log: list[Entry], cuts: list[int]
) -> None:
    progress = VChannelProgress(FromAll())
    decoder = Decoder(WANTED, progress)
    for cut in [*cuts, len(log) * 2]:
        for it in delivered(log, *progress.resume())[:cut]:
            before = progress.closed_tick
            batch = decoder.feed([frame(it)])
            for received in batch.messages if batch else []:
                assert received.tick > before


@settings(max_examples=cases(100), deadline=None)
@given(logs(), st.lists(st.integers(0, 12), max_size=4), st.data())
def test_retention_that_only_takes_what_was_seen_is_no_loss(
    log: list[Entry], cuts: list[int], data: st.DataObject
) -> None:
    progress = VChannelProgress(FromAll())
    decoder = Decoder(WANTED, progress)
    seen: list[tuple[int, int]] = []

    def read(kept: list[Entry], cut: int) -> None:
        for it in delivered(kept, *progress.resume())[:cut]:
            batch = decoder.feed([frame(it)])
            seen.extend((it.id, it.tick) for it in batch.messages) if batch else None

    for cut in cuts:
        read(log, cut)
    first_id = data.draw(st.integers(1, progress.done_id + 1))
    kept = [it for it in log if it.id >= first_id or it.announced]
    policy, _ = progress.resume()
    if isinstance(policy, StartFrom) and policy.id < first_id:
        progress.restart()
    read(kept, len(log) * 2)
    assert seen == shown(log)


@given(st.integers(1, 30), st.integers(1, 31))
def test_a_bounded_read_delivers_exactly_the_ids_below_its_end(size: int, end_id: int) -> None:
    log = [Entry(MessageType.INSERT, it, 1000 + it, it) for it in range(1, size + 1)]
    closed = Entry(MessageType.TIME_TICK, size, 1000 + size, size, announced=True)
    decoder = Decoder(
        MessageFilter(PCHANNEL, VCHANNEL, end=End(MessageId(end_id), TimeTick(1000 + size))),
        VChannelProgress(FromAll()),
    )
    batch = decoder.feed([frame(it) for it in [*log, closed]])
    assert decoder.done
    ids = [it.id for it in batch.messages] if batch else []
    assert ids == list(range(1, min(size + 1, end_id)))


def test_a_bounded_read_of_a_silent_vchannel_ends_at_the_closed_tick() -> None:
    end = End(MessageId(50), TimeTick(2000))
    decoder = Decoder(MessageFilter(PCHANNEL, VCHANNEL, end=end), VChannelProgress(FromAll()))
    decoder.feed([frame(Entry(MessageType.TIME_TICK, 10, 1999, 10, announced=True))])
    assert not decoder.done
    decoder.feed([frame(Entry(MessageType.TIME_TICK, 49, 2000, 49, announced=True))])
    assert decoder.done


def test_ticks_are_shown_only_to_who_wants_them() -> None:
    tick = frame(Entry(MessageType.TIME_TICK, 1, 1000, 1))
    assert Decoder(WANTED, VChannelProgress(FromAll())).feed([tick]) is None
    wanted = MessageFilter(PCHANNEL, VCHANNEL, with_ticks=True)
    batch = Decoder(wanted, VChannelProgress(FromAll())).feed([tick])
    assert batch is not None
    assert [it.type for it in batch.messages] == [MessageType.TIME_TICK]
    assert batch.closed_tick == 1000


def test_a_reader_of_all_may_begin_anew_until_it_was_given_a_message_and_gets_nothing_twice() -> (
    None
):
    reader = VChannelProgress(FromAll())
    assert reader.admit(MessageId(1), TimeTick(10), MessageId(1), whole=True, stays=True)
    assert reader.close(TimeTick(20), MessageId(5))
    assert reader.resume() == (StartFrom(MessageId(5)), TimeTickGt(TimeTick(20)))
    assert reader.begin_anew()
    assert not reader.admit(MessageId(1), TimeTick(10), MessageId(1), whole=True, stays=True)
    assert not reader.close(TimeTick(20), MessageId(5))
    # Until there is news: one that is refused there, too, is not refused for a purge.
    assert reader.resume() == (FromAll(), None)
    assert reader.close(TimeTick(30), MessageId(9))
    assert reader.resume() == (StartFrom(MessageId(9)), TimeTickGt(TimeTick(30)))
    assert reader.begin_anew()
    assert reader.admit(MessageId(9), TimeTick(40), MessageId(9), whole=True)
    assert not reader.begin_anew(), "what it misses behind that message it must be told"
    for policy, floor in ((StartFrom(MessageId(1)), 0), (FromAll(), 7)):
        assert not VChannelProgress(policy, TimeTick(floor)).begin_anew()
