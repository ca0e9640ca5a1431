"""Bad input through a real broker: names with path tricks in every key, and limits."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pytest

from broker.client import Client, connect
from broker.client.errors import (
    BadTarget,
    InvalidArgument,
    NoSuchCollection,
    ServerRefusal,
    TidemarkError,
)
from broker.coordinator.records import encode_number
from broker.master.table.table_records import PARTITION_COUNT_PREFIX
from broker.meta.sqlite import SqliteMetaStore
from broker.model.master.tenancy import ProxyMember, Tenant
from broker.model.master.time_ticks import TickOrigin
from tests.local_broker import local_broker

TRICKS = ("../x", "a/../../b", "/etc/passwd", "..", "a\x00b", "a\nb", "", "x" * 300)
"""Names that would reach other keys, or other files, if they were pasted into a path."""
Call = Callable[[Client, str], Awaitable[object]]


def tenant(name: str) -> Tenant:
    return Tenant(1, 1, (name,), "by-dev-rootcoord-dml_0")


CALLS: dict[str, Call] = {
    "a collection": lambda log, name: log.master.create_collection(name),
    "a collection in log.collections": lambda log, name: log.collections.create(name),
    "a partition": lambda log, name: log.master.create_partition("rows", name),
    "an alias": lambda log, name: log.master.create_alias("rows", name),
    "an index": lambda log, name: log.master.create_index(
        "vectors", "vector", {"index_type": "HNSW"}, name=name or "../x"
    ),
    "a field of an index": lambda log, name: log.master.create_index(
        "vectors", name, {"index_type": "HNSW"}
    ),
    "a database": lambda log, name: log.master.create_database(name),
    "the database of a collection": lambda log, name: log.master.create_collection(
        "other", database=name or "../x"
    ),
    "a configuration key": lambda log, name: log.config.set(f"app/{name * 8}", "1"),
    "the channel of a tenant": lambda log, name: log.master.add_tenant(tenant(name)),
    "the channel of a proxy": lambda log, name: log.master.add_proxy(
        ProxyMember(1, "10.0.0.1", 1, (name,))
    ),
    "the address of a proxy": lambda log, name: log.master.add_proxy(ProxyMember(1, name, 1)),
    "a channel of time ticks": lambda log, name: log.master.set_time_ticks(
        TickOrigin.WRITE_NODES, [1], [name]
    ),
}


async def records(tmp_path: Path) -> dict[str, bytes]:
    """Every record of the metadata but those that move by themselves."""
    async with await SqliteMetaStore.open(tmp_path / "meta.sqlite") as store:
        found = await store.list("", limit=1000)
    moving = ("tso/", "ids/", "oracle", "leader", "term")
    return {key: entry.value for key, entry in found if not key.startswith(moving)}


async def with_rows(log: Client) -> None:
    await log.master.create_collection("rows")
    vector = pa.field("vector", pa.list_(pa.float32(), 8))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), vector])
    await log.collections.create("vectors", schema=schema)


@pytest.mark.parametrize("what", list(CALLS))
async def test_a_name_with_path_tricks_is_refused_and_nothing_is_written(
    tmp_path: Path, what: str
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await with_rows(log)
    before = await records(tmp_path)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        for name in TRICKS:
            with pytest.raises((ServerRefusal, BadTarget)) as refused:
                await CALLS[what](log, name)
            # A sentence of one line, of a length that people read.
            assert len(str(refused.value)) < 500, name
            assert str(refused.value).isprintable(), name
    after = await records(tmp_path)
    assert after.keys() - before.keys() == set()
    assert not (tmp_path.parent / "x").exists()


async def test_one_partition_more_than_4096_is_refused_by_the_broker(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        made = await log.master.create_collection("rows")
    async with await SqliteMetaStore.open(tmp_path / "meta.sqlite") as store:
        await store.write({f"{PARTITION_COUNT_PREFIX}{made.id}": encode_number(4095)})
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.master.create_partition("rows", "the_last")
        with pytest.raises(InvalidArgument, match="'rows' has 4096 partitions, the most allowed"):
            await log.master.create_partition("rows", "one_more")
        assert sorted(await log.master.show_partitions("rows")) == ["_default", "the_last"]
        assert (await log.master.count_partitions()) == {made.id: 4096}


async def test_rows_that_contradict_the_schema_are_refused_with_the_difference(
    tmp_path: Path,
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("rows", schema=schema)
        for table, says in (
            (pa.table({"id": [1], "text": [2]}), "text"),
            (pa.table({"id": [1], "text": ["a"], "more": [1]}), "more"),
            (pa.table({"id": pa.array([None], pa.int64()), "text": ["a"]}), "id"),
        ):
            with pytest.raises(TidemarkError, match=re.escape(says)):
                await log.append_arrow("rows", table)
        with pytest.raises(TidemarkError, match="schema"):
            await log.append("rows", b"plain bytes")
        async with log.read_arrow("rows", until="now") as reader:
            assert [it async for it in reader] == []


async def test_an_unknown_collection_is_named_wherever_it_is_asked_for(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        for call in (
            lambda: log.collections.get("unknown"),
            lambda: log.collections.drop("unknown"),
            lambda: log.append("unknown", b"x"),
        ):
            with pytest.raises(NoSuchCollection, match="unknown"):
                await call()
