"""The names of the subjects that others are compared with, and those that goals are set for."""

from benchmark.measures.channels import PCHANNELS

DISK, DISK_LARGE = "bare write + sync, 64 a group", "bare write + sync, 1,000 a group"
DISK_ONE, DISK_STEP = "bare write + sync, 1 KiB", "bare write + sync, 20 KiB"
REDIS_APPEND, REDIS_READ = "Redis XADD, always", "Redis XREAD, 1,000 a call"
REDIS_ONE = f"{REDIS_APPEND}, one by one"
NATS_IDLE = "NATS always, idle"
REDIS_RESIDENT = "Redis always"

ONE = "Tidemark append, one by one"
PRODUCE, PRODUCE_GO = "Tidemark Produce, 1,000 in flight", "Tidemark Produce, frames as grpc-go's"
CONSUME = "Tidemark Consume, catching up"
CONSUME_GO = "Tidemark Consume, windows as grpc-go's"
PLAIN_TASKS = "Tidemark append, 50 tasks"
DISTINCT_TASKS = f"{PLAIN_TASKS}, distinct properties"
LIVE, CATCHING_UP = "Tidemark read_batches, as it comes", "Tidemark read_batches, catching up"
IDLE_BROKER = f"Tidemark, {PCHANNELS} pchannels, idle"
IDLE_BATCHES, IDLE_CONSUME = "Tidemark read_batches, idle", "Tidemark Consume, idle"
TIDEMARK_RESIDENT, TIDEMARK_LATER = "Tidemark", "Tidemark, 20 s later"
GROUP, GROUP_ONE = "Tidemark group, take + ack by 1,000", "Tidemark group, one message at a time"
REDIS_GROUP = "Redis XREADGROUP + XACK, by 1,000"
REDIS_GROUP_ONE = "Redis XREADGROUP + XACK, one message at a time"
NATS_GROUP = "NATS pull + ack, by 1,000"
IDLE_GROUPS = "Tidemark, 1,000 groups, idle"
IDLE_MEMBERS = "Tidemark, 1,000 groups, each with a waiting member"
REBALANCE = "Tidemark, rebalance of 64 vchannels over 8 members"
QUIET_APPENDS = "Tidemark append_batch, nothing to give back"
APPENDS_AMID = "Tidemark append_batch, 9 of 10 collections given back"
SPACE_BACK = "Tidemark, 9 of 10 collections dropped"
UNANNOUNCED = "Tidemark append_batch, no collection"
ANNOUNCED = "Tidemark append_batch, announced collection"
ARROW_READS, ARROW_PACKS = "Tidemark read_arrow, 4 shards", "Tidemark stream, packs as Arrow"
BODY_APPENDS, BODY_PACKS = "Tidemark append_batch, bodies", "Tidemark stream, produce"

TLS_RATES = TLS_APPENDS, TLS_READS, TLS_PRODUCE = (
    "append_batch", "read_batches, catching up", "Produce, 1,000 in flight"
)  # fmt: skip
TLS_ONE = "append, one by one"
"""What is measured with TLS and without."""

APPEND_BATCH, PRODUCE_RUN = "append_batch", "Produce"
"""The streams whose permission checks are measured, with `auth` on and off."""
CHECK_FIRST = "Tidemark permission check, first of a stream"

EMBEDDED_SIZES = 100, 1
"""Messages of a batch of an embedded queue."""

COLLECTIONS = 10, 10_000
"""How many there are when the master is asked for one of them."""
MASTER_CREATE = "Tidemark CreateCollection, 4 shards"
MASTER_BROADCAST = "Tidemark broadcast to the same channels"
MASTER_NAME, MASTER_NAMES = "Tidemark DDL, one collection", "Tidemark DDL, 64 collections"
MASTER_EMPTY = "Tidemark health check, 64 in flight"
MASTER_TIMESTAMP = "Tidemark AllocTimestamp, 64 in flight"
MASTER_ID = "Tidemark AllocID, 64 in flight"


def plain(what: str) -> str:
    """On a broker without TLS that is otherwise as `over_tls`."""
    return f"Tidemark {what}, no TLS"


def over_tls(what: str) -> str:
    """On a broker that asks for certificates."""
    return f"Tidemark {what}, TLS"


def checked(what: str) -> str:
    """A check that looks up what the stream was allowed."""
    return f"Tidemark permission check, {what}"


def unchecked(what: str) -> str:
    """The same without `auth`."""
    return f"{checked(what)}, no auth"


CHECKS = (
    *[named(it) for it in (APPEND_BATCH, PRODUCE_RUN) for named in (unchecked, checked)],
    CHECK_FIRST,
)


def master_start(count: int) -> str:
    """The start of a coordinator with so many collections."""
    return f"Tidemark coordinator starts, {count:,} collections"


def master_has(count: int) -> str:
    """Look-ups among so many collections."""
    return f"Tidemark HasCollection, {count:,} collections"


def master_describe(count: int) -> str:
    """Descriptions of one of so many collections."""
    return f"Tidemark DescribeCollection, {count:,} collections"


def plain_batches(size: int) -> str:
    """Native batches of that size, without transactions."""
    return f"Tidemark append_batch, of {size}"


def some_txns(size: int) -> str:
    """Native batches of which one in ten is a transaction."""
    return f"{plain_batches(size)}, 10 % in txns"


def all_txns(size: int) -> str:
    """Transactions of one batch each, by `log.txn`."""
    return f"Tidemark txn, append_batch of {size}"


def message_txns(size: int) -> str:
    """Transactions of single messages, by `append_messages`."""
    return f"Tidemark append_messages, {size} in a txn"


def channels(count: int, told: str) -> str:
    """A reader of so many vchannels."""
    return f"Tidemark, {count:,} vchannels, {told}"


def bare_batches(size: int) -> str:
    """A loop of RocksDB's own write batches."""
    return f"bare RocksDB batch + sync, of {size}"


def rocksmq(size: int) -> str:
    """Batches of one producer of an embedded queue."""
    return f"RocksMQ produce, of {size}"


def rocksmq_tasks(size: int) -> str:
    """The same of several producers at once."""
    return f"RocksMQ produce, of {size}, 8 tasks"


def rocksmq_reads(size: int) -> str:
    """What batches of that size are read back with."""
    return f"RocksMQ consume, produced by {size}"


def sqlite_queue(size: int) -> str:
    """Batches that are inserted into a table."""
    return f"SQLite queue, synchronous=FULL, of {size}"
