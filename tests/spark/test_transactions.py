"""Transactions in micro-batches: each one whole, in one of them, once; or never."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pyspark.sql import DataFrame, SparkSession

from broker.client import Client, TransactionExpired, Txn, connect
from broker.client.cluster.targets import NewVChannel
from tests.broker_process import BrokerProcess
from tests.spark.test_source import batch, finish, stream

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_3_900v0")
OTHER = NewVChannel("by-dev-rootcoord-dml_3_900v1")
"""On the same pchannel, so that ids of one lie between those of the other."""
SHORT_S = 10.0
"""The keepalive of one that expires: no pause of a busy machine between two bodies lasts so long;
Spark runs meanwhile, so that little of it is left to wait for."""


class Hand:
    """A client whose transactions stay open while Spark runs."""

    def __init__(self, portal: BlockingPortal, log: Client) -> None:
        self._portal, self._log = portal, log
        self.committed: list[set[bytes]] = []
        """The values that must come together."""
        self.never: set[bytes] = set()
        self._newest_ticks: dict[int, int] = {}
        """Of the bodies of each transaction: its keepalive counts from there."""

    def plain(self, *values: bytes) -> None:
        for value in values:
            self._portal.call(self._log.append, VCHANNEL, value)
            self._portal.call(self._log.append, OTHER, b"other")
            self.committed.append({value})

    def begin(self, keepalive_s: float = 120) -> Txn:
        txn = self._log.txn(VCHANNEL, keepalive_s=keepalive_s)
        self._portal.call(txn.begin)
        return txn

    def body(self, txn: Txn, *values: bytes) -> None:
        for value in values:
            self._newest_ticks[txn.id] = self._portal.call(txn.append, value).tick

    def commit(self, txn: Txn, *values: bytes) -> None:
        self._portal.call(txn.commit)
        self.committed.append(set(values))

    def rollback(self, txn: Txn, *values: bytes) -> None:
        self._portal.call(txn.rollback)
        self.never |= set(values)

    def let_expire(self, txn: Txn, *values: bytes) -> None:
        async def until_it_is_over() -> None:
            """Ticks move its clock; another channel of the pchannel shows them."""
            over_tick = self._newest_ticks[txn.id] + (int(SHORT_S * 1000 + 1_000) << 18)
            async for each in self._log.read(OTHER, start="latest", with_ticks=True):
                if each.closed_tick > over_tick:
                    break
            with pytest.raises(TransactionExpired):
                await txn.commit()

        self._portal.call(until_it_is_over)
        self.never |= set(values)


@contextmanager
def hand(address: str) -> Iterator[Hand]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connect(address)) as log,
    ):
        yield Hand(portal, log)


def values(prefix: bytes, count: int) -> list[bytes]:
    return [prefix + b"-%d" % number for number in range(count)]


class MicroBatches:
    """Runs a query over what is there, and keeps what each micro-batch held."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, checkpoint: str) -> None:
        self._spark, self._broker, self._checkpoint = spark, broker, checkpoint
        self.held: dict[int, list[bytes]] = {}

    def run(self, **options: object) -> None:
        def keep(frame: DataFrame, number: int) -> None:
            self.held[number] = [bytes(row.value) for row in frame.select("value").collect()]

        frame = stream(self._spark, self._broker, VCHANNEL, startingOffsets="earliest", **options)
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)
        finish(query.trigger(availableNow=True).start())

    @property
    def rows(self) -> list[bytes]:
        return [value for number in sorted(self.held) for value in self.held[number]]


@pytest.mark.parametrize(
    "limit", [{"maxRowsPerTrigger": 4}, {"maxBytesPerTrigger": 150}], ids=["rows", "bytes"]
)
def test_each_transaction_is_in_one_micro_batch_whole_or_in_none(
    spark: SparkSession, broker: BrokerProcess, checkpoint: str, limit: dict[str, int]
) -> None:
    batches = MicroBatches(spark, broker, checkpoint)
    mark = str(limit).encode()
    with hand(broker.address) as log:
        log.plain(*values(mark + b"plain", 5))
        first, long = log.begin(), log.begin()
        one, two = values(mark + b"first", 12), values(mark + b"long", 9)
        log.body(first, *one[:6])
        log.body(long, *two[:3])
        # Only now: its keepalive must not pass before its bodies are written.
        gone = log.begin(keepalive_s=SHORT_S)
        log.body(gone, *values(mark + b"gone", 4))
        batches.run(**limit)
        log.body(first, *one[6:])
        back = log.begin()
        log.body(back, *values(mark + b"back", 3))
        log.plain(*values(mark + b"between", 4))
        log.commit(first, *one)
        log.rollback(back, *values(mark + b"back", 3))
        log.body(long, *two[3:6])
        log.let_expire(gone, *values(mark + b"gone", 4))
        batches.run(**limit)
        log.body(long, *two[6:])
        log.commit(long, *two)
        log.plain(mark + b"last")
        batches.run(**limit)
        mine = [value for value in batches.rows if value.startswith(mark)]
        assert sorted(mine) == sorted(value for part in log.committed for value in part)
        assert log.never.isdisjoint(batches.rows)
        for part in log.committed:
            assert sum(not part.isdisjoint(held) for held in batches.held.values()) == 1
        assert len(batches.held) > 5
        whole = [bytes(row.value) for row in batch(spark, broker, VCHANNEL).collect()]
        assert sorted(whole) == sorted(batches.rows)
