"""The questions that a benchmark answers: which subjects stand together, and beside which one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmark import names
from benchmark.measures.channels import PCHANNELS
from benchmark.results.figures import (
    BACK,
    CHECK,
    IDLE,
    P50,
    RATE,
    RESIDENT,
    START,
    TICK,
    Series,
    find,
)
from broker.process_settings import Settings

ONE_BY_ONE, PACED = "latency, one at a time", "latency at a rate"
FRAMES, PROPERTIES, ANNOUNCED = "frames", "properties", "announced"
HAS, DESCRIBE, STARTS = "master HasCollection", "master DescribeCollection", "master start"
CREATION, CHANGES, ALLOCATIONS = "master creation", "master changes", "master allocations"
IDLE_SERVER, IDLE_READER, MEMORY = "idle", "idle reader", "memory"
SPACE, SPACE_APPENDS = "space", "space appends"
STREAM_READS, STREAM_SENDS = "stream reads", "stream sends"
GROUPS, GROUPS_ONE = "groups", "groups, one at a time"
AS_IT_COMES, CATCHING_UP = "as it comes", "catching up"
TLS_ONE = "TLS, one at a time"
PERMISSIONS = "permissions"
CACHE_BYTES = Settings().tail_total_bytes_max


@dataclass(frozen=True, slots=True)
class Question:
    """Subjects of one kind, and those named, beside the `reference`; `key` is what is compared."""

    title: str
    kind: str
    key: str
    unit: str
    reference: str = ""
    also: tuple[str, ...] = ()

    def holds(self, it: Series) -> bool:
        """Whether this question is about a subject, or compares others with it."""
        return it.kind == self.kind or it.name in (self.reference, *self.also)

    @property
    def lower_is_better(self) -> bool:
        """Of two values, whether the smaller one is the better."""
        return self.key != RATE


def txns_of(size: int) -> str:
    """The kind of subject that appends batches of one size, with and without transactions."""
    return f"txns of {size}"


def embedded(size: int) -> str:
    """The kind of subject that is a queue within the process."""
    return f"embedded, of {size}"


def many_channels(told: str) -> str:
    """The kind of subject that reads many vchannels."""
    return f"channels, {told}"


def with_tls(what: str) -> str:
    """The kind of subject that is measured with TLS and without."""
    return f"TLS, {what}"


QUESTIONS = (
    Question("One awaited append, p50", ONE_BY_ONE, P50, "ms", names.REDIS_ONE),
    Question(
        "Appends at a fixed rate, p50 from when one is due",
        PACED, P50, "ms", names.DISK_STEP,
    ),
    Question(
        "Durable appends, a message a frame",
        FRAMES, RATE, "messages/s", names.REDIS_APPEND,
    ),
    Question(
        "Appends, in batches or many in flight",
        "append", RATE, "messages/s", names.REDIS_APPEND,
    ),
    Question("Reads", "read", RATE, "messages/s", names.REDIS_READ),
    Question(
        "Reading live",
        "", RATE, "messages/s", names.CATCHING_UP, (names.LIVE,),
    ),
    Question(
        "Groups: take and acknowledge",
        GROUPS, RATE, "messages/s", names.REDIS_GROUP,
    ),
    Question(
        "Groups: one message at a time",
        GROUPS_ONE, RATE, "messages/s", names.REDIS_GROUP_ONE,
    ),
    Question(
        "Properties that differ",
        PROPERTIES, RATE, "messages/s", names.PLAIN_TASKS,
    ),
    Question(
        "Batches of an announced collection, placed in segments",
        ANNOUNCED, RATE, "messages/s", names.UNANNOUNCED,
    ),
    *[
        Question(
            f"Transactions of {size}",
            txns_of(size), RATE, "messages/s", names.plain_batches(size),
        )
        for size in (100, 10)
    ],
    Question("Arrow rows of 100 B, 1,000 a batch", "rows", RATE, "rows/s"),
    *[
        Question(
            f"Many vchannels, {told}",
            many_channels(told), RATE, "messages/s", names.channels(PCHANNELS, told),
        )
        for told in (AS_IT_COMES, CATCHING_UP)
    ],
    Question(
        "A rebalance of an ordered group by vchannel", names.REBALANCE, P50, "ms, p50"
    ),
    Question("CPU of an idle server", IDLE_SERVER, IDLE, "% of a core", names.NATS_IDLE),
    Question("CPU of the server for each tick of an idle reader", IDLE_READER, TICK, "µs"),
    Question(
        f"Resident after a round, cache {CACHE_BYTES / 1e6:,.0f} MB",
        MEMORY, RESIDENT, "MB", names.REDIS_RESIDENT,
    ),
    Question(
        "A coordinator, from the start of its process to its first answer",
        STARTS, START, "s", names.master_start(names.COLLECTIONS[0]),
    ),
    Question(
        "HasCollection, one at a time",
        HAS, P50, "ms", names.master_has(names.COLLECTIONS[0]),
    ),
    Question(
        "DescribeCollection, one at a time",
        DESCRIBE, P50, "ms", names.master_describe(names.COLLECTIONS[0]),
    ),
    Question("Dropped collections, until 85 % of their bytes are back", SPACE, BACK, "s"),
    Question(
        "Appends while the bytes of dropped collections are given back",
        SPACE_APPENDS, RATE, "messages/s", names.QUIET_APPENDS,
    ),
    Question("Rows of a stream's packs", STREAM_READS, RATE, "rows/s", names.ARROW_READS),
    Question("Messages of a stream's packs", STREAM_SENDS, RATE, "messages/s", names.BODY_APPENDS),
    *[
        Question(
            f"Queues embedded in the process, 1 KiB, {size} a batch",
            embedded(size), RATE, "messages/s", names.bare_batches(size),
        )
        for size in names.EMBEDDED_SIZES
    ],
    *[
        Question(
            f"TLS and certificates, {what}",
            with_tls(what), RATE, "messages/s", names.plain(what),
        )
        for what in names.TLS_RATES
    ],
    Question(
        "TLS and certificates, one awaited append, p50",
        TLS_ONE, P50, "ms", names.plain(names.TLS_ONE),
    ),
    Question(
        "One permission check of a batch, and the first one of a stream", PERMISSIONS, CHECK, "µs"
    ),
    Question("Creating a collection", CREATION, P50, "ms", names.MASTER_BROADCAST),
    Question(
        "Partitions created and dropped by 64 callers",
        CHANGES, RATE, "changes/s", names.MASTER_NAME,
    ),
    Question("Timestamps and ids, one a call", ALLOCATIONS, RATE, "calls/s", names.MASTER_EMPTY),
)  # fmt: skip


def asked(
    field_of: Sequence[Series], questions: "Sequence[Question]" = QUESTIONS
) -> Iterator[tuple[Question, list[Series]]]:
    """The questions of which something was measured, each with its reference first."""
    for question in questions:
        found = [it for it in field_of if question.holds(it) and it.rounds]
        reference = find(found, question.reference)
        rest = [it for it in found if it is not reference]
        if rest:
            yield question, [*([reference] if reference else []), *rest]
