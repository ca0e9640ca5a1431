"""Logs as lists of record heads, and what a naive reader counts on them one message at a time."""

from dataclasses import dataclass

from hypothesis import strategies as st

from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.measured import RecordHead
from broker.model.message import MessageType
from broker.model.txn import TxnPart

PCHANNEL = "by-dev-rootcoord-dml_0"
SHARDS = tuple(f"{PCHANNEL}_7v{number}" for number in range(3))
Part = tuple[str, int, int, int]
"""What happens (plain, everybody, tick, own, begin, body, commit, rollback), to which shard, how
many messages, how many bytes each. `own`: the log creates or flushes a segment."""

WHAT = (
    *("plain", "plain", "everybody", "tick", "own"),
    *("begin", "body", "body", "commit", "rollback"),
)
OWN = (MessageType.CREATE_SEGMENT, MessageType.FLUSH)
parts = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 2), st.integers(1, 9), st.integers(0, 20)),
    max_size=30,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One message where a reader gets it."""

    vchannel: str
    tick: int
    size: int


def log_of(happened: list[Part]) -> tuple[list[RecordHead], list[Row]]:
    """The heads in the order of the log, and the rows that readers get, in the order of ticks."""
    heads: list[RecordHead] = []
    rows: list[Row] = []
    open_txns: dict[int, tuple[int, list[int]]] = {}
    next_id, next_tick = 0, 10
    for what, shard, wanted, size in happened:
        kind, vchannel, part = MessageType.INSERT, SHARDS[shard], None
        count = wanted if what in ("plain", "body") else 1
        if what in ("tick", "everybody"):
            kind = MessageType.TIME_TICK if what == "tick" else MessageType.FLUSH_ALL
            vchannel = ""
        elif what == "own":
            kind = OWN[size % 2]
        elif what in ("begin", "body", "commit", "rollback"):
            if (what == "begin") == (shard in open_txns):
                continue
            begin_id, bodies = open_txns.setdefault(shard, (next_id, []))
            part = TxnPart(TxnId(100 + begin_id), 1000, MessageId(begin_id), len(bodies))
            kind = {
                "begin": MessageType.BEGIN_TXN,
                "body": MessageType.INSERT,
                "commit": MessageType.COMMIT_TXN,
                "rollback": MessageType.ROLLBACK_TXN,
            }[what]
            if what == "body":
                bodies += [size] * count
            elif what != "begin":
                del open_txns[shard]
            if what == "commit":
                rows += [Row(vchannel, next_tick, each) for each in bodies]
        if part is None and kind not in (MessageType.TIME_TICK, *OWN):
            rows += [Row(vchannel, next_tick + number, size) for number in range(count)]
        base_id, base_tick = MessageId(next_id), TimeTick(next_tick)
        oldest = min((begin for begin, _ in open_txns.values()), default=next_id)
        heads.append(
            RecordHead(
                base_id, base_tick, MessageId(oldest), count, kind, vchannel, size * count, part
            )
        )
        next_id, next_tick = next_id + count, next_tick + count + size % 3
    return heads, rows


def seen(rows: list[Row], channel: str) -> list[Row]:
    """What a reader of the channel gets."""
    return [it for it in rows if channel == PCHANNEL or it.vchannel in (channel, "")]
