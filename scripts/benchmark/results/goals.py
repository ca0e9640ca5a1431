"""The goals of one message's cost and of the master, and whether a run meets them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark import names
from benchmark.measures.given_back import PERIOD_S
from benchmark.results.figures import (
    BACK,
    CHECK,
    CPU,
    IDLE,
    P50,
    P99,
    RATE,
    RESIDENT,
    START,
    TICK,
    Series,
    find,
    ratios,
)
from benchmark.results.questions import CACHE_BYTES

MEMORY_BESIDE_CACHE_MB = 100


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for one figure of a subject, or for its ratio to another subject."""

    row: str
    limit: float
    subject: str
    key: str
    reference: str = ""
    at_least: bool = False
    unit: str = ""

    def measured(self, field_of: Sequence[Series]) -> list[float]:
        """The figure or the ratio, of each round."""
        it = find(field_of, self.subject)
        if it is None:
            return []
        if self.reference:
            return ratios(it, find(field_of, self.reference), self.key)
        return it.values(self.key)

    def met(self, found: Sequence[float]) -> bool | None:
        """Whether the median keeps the limit; None without any round."""
        if not found:
            return None
        middle = statistics.median(found)
        return middle >= self.limit if self.at_least else middle <= self.limit


def _txn_goals() -> list[Goal]:
    return [
        Goal(
            f"{row.format(size)} ÷ plain batches", limit, named(size), RATE,
            names.plain_batches(size), at_least=True,
        )
        for size, limit in ((100, 0.85), (10, 0.7))
        for row, named in (
            ("transactions of {} by txn()", names.all_txns),
            ("one batch of {} in 10 a transaction", names.some_txns),
        )
    ]  # fmt: skip


def _group_goals() -> list[Goal]:
    return [
        Goal(
            "group, take + ack ÷ read_batches", 0.7, names.GROUP, RATE,
            names.CATCHING_UP, at_least=True,
        ),
        Goal(
            "group, take + ack ÷ XREADGROUP + XACK", 3, names.GROUP, RATE,
            names.REDIS_GROUP, at_least=True,
        ),
        Goal(
            "group, one message ÷ XREADGROUP + XACK", 1, names.GROUP_ONE, RATE,
            names.REDIS_GROUP_ONE, at_least=True,
        ),
        Goal(
            "rebalance, 64 vchannels over 8 members, p99", 1000, names.REBALANCE, P99, unit="ms"
        ),
        Goal("1,000 idle groups, CPU", 5, names.IDLE_GROUPS, IDLE, unit="%"),
        Goal("1,000 groups with waiting members, CPU", 5, names.IDLE_MEMBERS, IDLE, unit="%"),
    ]  # fmt: skip


def _space_goals() -> list[Goal]:
    return [
        Goal(
            "85 % of dropped bytes are back (one period)", PERIOD_S, names.SPACE_BACK, BACK,
            unit="s",
        ),
        Goal(
            "append_batch, while space is given back ÷ before", 0.8, names.APPENDS_AMID, RATE,
            names.QUIET_APPENDS, at_least=True,
        ),
    ]  # fmt: skip


def _stream_goals() -> list[Goal]:
    return [
        Goal(f"{row} ÷ {beside}", limit, subject, RATE, reference, at_least=True)
        for row, beside, limit, subject, reference in (
            ("Arrow packs of a stream", "read_arrow", 0.85, names.ARROW_PACKS, names.ARROW_READS),
            ("produce of a stream", "append_batch", 0.9, names.BODY_PACKS, names.BODY_APPENDS),
        )
    ]


def _embedded_goals() -> list[Goal]:
    return [
        Goal(
            f"embedded RocksMQ ÷ bare synced batches of {size}", 0.5, names.rocksmq(size), RATE,
            names.bare_batches(size), at_least=True,
        )
        for size in names.EMBEDDED_SIZES
    ]  # fmt: skip


def _tls_goals() -> list[Goal]:
    one = names.TLS_ONE
    return [
        *[
            Goal(
                f"{what}, TLS ÷ none", 0.75, names.over_tls(what), RATE,
                names.plain(what), at_least=True,
            )
            for what in names.TLS_RATES
        ],
        Goal(f"{one}, p50, TLS ÷ none", 1 / 0.75, names.over_tls(one), P50, names.plain(one)),
    ]  # fmt: skip


def _permission_goals() -> list[Goal]:
    return [
        Goal(f"permission check of a batch, {what}", 1, names.checked(what), CHECK, unit="µs")
        for what in (names.APPEND_BATCH, names.PRODUCE_RUN)
    ]


def _master_goals() -> list[Goal]:
    few, many = names.COLLECTIONS
    return [
        Goal(
            f"coordinator's start, {many:,} collections", 2, names.master_start(many), START,
            unit="s",
        ),
        *[
            Goal(f"{method}, p50, {many:,} collections ÷ {few}", 1.2, named(many), P50, named(few))
            for method, named in (
                ("HasCollection", names.master_has),
                ("DescribeCollection", names.master_describe),
            )
        ],
        Goal(
            "CreateCollection ÷ broadcast, p50", 1.3, names.MASTER_CREATE, P50,
            names.MASTER_BROADCAST,
        ),
        Goal(
            "DDL of 64 collections ÷ of one", 5, names.MASTER_NAMES, RATE, names.MASTER_NAME,
            at_least=True,
        ),
        *[
            Goal(f"{method} ÷ health check", 0.8, name, RATE, names.MASTER_EMPTY, at_least=True)
            for method, name in (
                ("AllocTimestamp", names.MASTER_TIMESTAMP),
                ("AllocID", names.MASTER_ID),
            )
        ],
    ]  # fmt: skip


GOALS = (
    Goal("one awaited append, p50 ÷ Redis always", 1.3, names.ONE, P50, names.REDIS_ONE),
    Goal("one awaited append, server CPU", 350, names.ONE, CPU, unit="µs"),
    Goal(
        "Produce a frame a message ÷ Redis always", 1.6, names.PRODUCE, RATE,
        names.REDIS_APPEND, at_least=True,
    ),
    Goal("Produce a frame a message, server CPU", 18, names.PRODUCE, CPU, unit="µs"),
    Goal(
        "Produce, CPU of grpc-go's frames ÷ ours", 1.1, names.PRODUCE_GO, CPU, names.PRODUCE
    ),
    Goal(
        "Consume a frame a message ÷ XREAD", 1.4, names.CONSUME, RATE,
        names.REDIS_READ, at_least=True,
    ),
    Goal(
        "distinct properties ÷ none, 50 tasks", 0.8, names.DISTINCT_TASKS, RATE,
        names.PLAIN_TASKS, at_least=True,
    ),
    Goal(
        "append_batch, announced collection ÷ none", 0.9, names.ANNOUNCED, RATE,
        names.UNANNOUNCED, at_least=True,
    ),
    *_txn_goals(),
    Goal(
        "read_batches live ÷ catching up", 0.6, names.LIVE, RATE,
        names.CATCHING_UP, at_least=True,
    ),
    *_group_goals(),
    Goal("idle broker, 16 pchannels, CPU", 1.5, names.IDLE_BROKER, IDLE, unit="%"),
    Goal("idle reader of read_batches, CPU a tick", 20, names.IDLE_BATCHES, TICK, unit="µs"),
    Goal("idle reader of Consume, CPU a tick", 20, names.IDLE_CONSUME, TICK, unit="µs"),
    Goal(
        "resident memory (cache + 100 MB)",
        CACHE_BYTES / 1e6 + MEMORY_BESIDE_CACHE_MB,
        names.TIDEMARK_RESIDENT, RESIDENT, unit="MB",
    ),
    Goal(
        "resident memory 20 s later (cache + 100 MB)",
        CACHE_BYTES / 1e6 + MEMORY_BESIDE_CACHE_MB,
        names.TIDEMARK_LATER, RESIDENT, unit="MB",
    ),
    *_space_goals(),
    *_stream_goals(),
    *_tls_goals(),
    *_permission_goals(),
    *_embedded_goals(),
    *_master_goals(),
)  # fmt: skip
