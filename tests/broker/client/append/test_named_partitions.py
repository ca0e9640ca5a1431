"""Rows that name their partition, through a real broker; and what the master is asked for."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from broker.client import Client, Message, connect
from broker.client.append.named_partitions import NamedPartitions
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import (
    AppendsFailed,
    BadTarget,
    OutcomeUnknown,
    TidemarkError,
    UnknownDefinition,
    Unrecoverable,
)
from broker.client.master.collection_calls import CollectionDescription
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, TimeTick, VChannelName
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.message import MessageType
from schemas.generated.milvus.proto import schema as milvus
from tests.local_broker import local_broker

SHARD = VChannelName("by-dev-rootcoord-dml_0_7v0")
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False)])
WAIT_S_MAX = 60.0
"""Against hanging only."""


@asynccontextmanager
async def client(folder: Path) -> AsyncIterator[Client]:
    async with local_broker(folder, pchannels=2) as broker, connect(broker.address) as log:
        yield log


def trains(name: str = "trains") -> bytes:
    field = milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True)
    return bytes(milvus.CollectionSchema(name=name, fields=[field]))


async def create(log: Client, shards: int = 1) -> dict[PartitionId, str]:
    """A collection with the partitions `_default`, `late` and `early`, by id."""
    await log.master.create_collection("trains", shards=shards, milvus_schema=trains())
    for name in ("late", "early"):
        await log.master.create_partition("trains", name)
    found = await log.master.show_partitions("trains")
    return {id: name for name, id in found.items()}


async def read(log: Client, names: Mapping[PartitionId, str]) -> list[tuple[bytes, str | None]]:
    found = []
    async for batch in log.read_batches("trains", until="now"):
        ids = batch.partition_ids
        assert [it.partition_id for it in batch.messages] == list(ids)
        found += [
            (payload, None if id is None else names[id])
            for payload, id in zip(batch.payloads, ids, strict=True)
        ]
    return sorted(found)


async def counted(log: Client, names: Mapping[PartitionId, str], rows: int) -> dict[str, int]:
    """The rows of the flushed segments of each partition, once there are so many."""
    found: Counter[str] = Counter()
    id = (await log.collections.get("trains")).id
    with anyio.fail_after(WAIT_S_MAX):
        while found.total() < rows:
            # Again and again: a vchannel is not known before its state was saved once.
            await log.master.seal_collection(id)
            await anyio.sleep(0.05)
            found = Counter()
            for it in await log.master.show_segments(id):
                if it.state is SegmentMetaState.FLUSHED:
                    found[names[it.partition_id]] += it.rows
    return dict(found)


async def test_rows_are_in_the_partition_that_their_append_names(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        names = await create(log)
        (shard,) = (await log.collections.get("trains")).vchannels
        await log.append("trains", b"1", partition="late", key=b"k", properties={"a": "b"})
        await log.append_batch("trains", [b"2", b"2"], partition="early")
        await log.append_batch(shard, [b"3"], keys=[b"k"])
        many = [Message(b"4", properties={"n": str(it)}) for it in range(3)]
        await log.append_messages("trains", many, partition="late")
        await log.append_messages("trains", [Message(b"5")], partition="late")
        await log.append_messages("trains", many, atomic=False, partition="early")
        async with log.txn("trains") as txn:
            await txn.append(b"6", partition="early")
            await txn.append_messages([Message(b"6"), Message(b"6")], partition="late")
            await txn.append_batch([b"6"], partition="early")
            await txn.append(b"6")
        async with log.stage("app", 1, 0) as stage:
            await stage.append("trains", b"7", partition="late")
            await stage.append_batch("trains", [b"7", b"7"], partition="early")
            part = await stage.seal()
        await log.commit_batch("app", 1, [part])
        assert await read(log, names) == sorted(
            [(b"1", "late"), (b"3", "_default"), (b"5", "late"), (b"6", "_default")]
            + [(b"2", "early")] * 2
            + [(b"4", "late"), (b"4", "early")] * 3
            + [(b"6", "early"), (b"6", "late")] * 2
            + [(b"7", "late"), (b"7", "early"), (b"7", "early")]
        )
        assert await counted(log, names, 19) == {"_default": 2, "late": 8, "early": 9}


async def test_each_shard_counts_its_rows(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        names = await create(log, shards=2)
        messages = [Message(b"%d" % it, key=it) for it in range(40)]
        await log.append_messages("trains", messages[:20], partition="late")
        await log.append_messages("trains", messages[20:], atomic=False, partition="early")
        assert await counted(log, names, 40) == {"late": 20, "early": 20}


async def test_a_partition_that_was_made_anew_is_found(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await create(log)
        await log.append_batch("trains", [b"before"], partition="late")
        await log.master.drop_partition("trains", "late")
        with pytest.raises(UnknownDefinition, match="'trains' has no partition 'late'"):
            await log.append_batch("trains", [b"never"], partition="late")
        await log.append("trains", b"other", partition="early")
        made = await log.master.create_partition("trains", "late")
        await log.append_messages("trains", [Message(b"x"), Message(b"y")], partition="late")
        await log.master.drop_partition("trains", "late")
        last = await log.master.create_partition("trains", "late")
        await log.append("trains", b"after", partition="late")
        async with log.txn("trains") as txn:
            await txn.append(b"in a txn", partition="late")
        found = {
            it.payload: it.partition_id async for it in log.read("trains", until="now").messages()
        }
        assert (found[b"x"], found[b"after"], found[b"in a txn"]) == (made.id, last.id, last.id)
        assert b"never" not in found


async def test_a_collection_that_was_made_anew_is_found_by_the_append_after_the_error(
    tmp_path: Path,
) -> None:
    async with (
        local_broker(tmp_path, pchannels=2) as broker,
        connect(broker.address) as log,
        connect(broker.address) as other,
    ):
        await create(log)
        await log.append("trains", b"before")
        await other.master.drop_collection("trains")
        names = await create(other)
        with pytest.raises(TidemarkError):
            await log.append("trains", b"never", partition="late")
        await log.append("trains", b"after", partition="late")
        assert await read(log, names) == [(b"after", "late")]


async def test_a_collection_that_this_client_made_anew_is_found_at_once(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await create(log)
        await log.append("trains", b"before", partition="late")
        await log.master.drop_collection("trains")
        names = await create(log)
        await log.append("trains", b"after", partition="late")
        assert await read(log, names) == [(b"after", "late")]


async def test_what_has_no_partition_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await create(log)
        await log.collections.create("plain")
        await log.master.create_partition("plain", "late")
        with pytest.raises(BadTarget, match="collection 'plain' has no schema"):
            await log.append("plain", b"row", partition="late")
        listing = r"no partition ''; log.master.show_partitions\('trains'\) lists the 3"
        with pytest.raises(UnknownDefinition, match=listing):
            await log.append("trains", b"row", partition="")
        with pytest.raises(BadTarget, match="only an insert"):
            await log.append("trains", b"row", partition="late", type=MessageType.DELETE)
        with pytest.raises(BadTarget, match="with a header"):
            await log.append("trains", b"row", partition="late", header=b"\x08\x07")
        with pytest.raises(BadTarget, match="with a header"):
            await log.append_messages(
                "trains", [Message(b"")], barrier_time_tick=1, partition="late"
            )
        with pytest.raises(BadTarget, match="is of no collection"):
            await log.append(NewVChannel("by-dev-rootcoord-dml_0_x"), b"row", partition="late")
        with pytest.raises(ValueError, match=r"'_h' is reserved.*`partition` names a partition"):
            await log.append("trains", b"row", partition="late", properties={"_h": "CAE="})
        assert [it async for it in log.read("trains", until="now").messages()] == []


async def test_rows_of_a_collection_with_a_schema_name_a_partition(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.collections.create("trains", schema=ARROW, shards=2)
        made = await log.master.create_partition("trains", "late")
        rows = pa.table([[1, 2, 3, 4]], schema=ARROW)
        (shard, _) = (await log.collections.get("trains")).vchannels
        await log.append_arrow("trains", rows, key="id", partition="late")
        async with log.txn(shard) as txn:
            await txn.append_arrow(rows, partition="late")
        async with log.stage("app", 1, 0) as stage:
            await stage.append_arrow("trains", rows, partition="late")
            part = await stage.seal()
        await log.commit_batch("app", 1, [part])
        with pytest.raises(UnknownDefinition, match="no partition 'early'"):
            await log.append_arrow("trains", rows, partition="early")
        found = [
            id async for it in log.read_batches("trains", until="now") for id in it.partition_ids
        ]
        assert found == [made.id] * 12


# ---- what the master is asked for ---------------------------------------------------------------


class Table:
    """The part of `log.master` that is asked: one collection, `partitions` as they are set."""

    def __init__(self, **changed: Any) -> None:
        plain = CollectionDescription(
            "trains", CollectionId(7), "default", 0, (SHARD,), "_default", PartitionId(1), 1, (),
            0, TimeTick(1), RowSchema(b"", (1,)), b"",
        )  # fmt: skip
        self.found: CollectionDescription | None = replace(plain, **changed)
        self.partitions = {"late": PartitionId(2)}
        self.asked = self.forgotten = 0

    async def describe_collection(
        self, name: str = "", *, database: str = "", collection_id: int = 0
    ) -> CollectionDescription:
        assert (name, database, collection_id) == ("", "", 7)
        self.asked += 1
        if self.found is None:
            raise UnknownDefinition("there is no collection with id 7")
        return self.found

    async def show_partitions(
        self, collection: str, *, database: str = ""
    ) -> Mapping[str, PartitionId]:
        assert self.found is not None
        assert (collection, database) == ("trains", self.found.database)
        return self.partitions

    def forget(self) -> None:
        self.forgotten += 1


class Refusing:
    """An append that fails with each of these errors, then succeeds."""

    def __init__(self, *errors: TidemarkError) -> None:
        self.errors = list(errors)
        self.given: list[bytes] = []

    async def __call__(self, named: bytes) -> int:
        self.given.append(named)
        if self.errors:
            raise self.errors.pop(0)
        return len(self.given)


UNKNOWN = Unrecoverable("collection 7 has no partition 2")


async def test_a_name_is_asked_for_once() -> None:
    table = Table()
    partitions = NamedPartitions(table, table.forget)
    append = Refusing()
    for _ in range(3):
        await partitions.into(SHARD, "late", append)
    assert (table.asked, len(set(append.given))) == (1, 1)


@pytest.mark.parametrize("error", [UNKNOWN, AppendsFailed([UNKNOWN, UNKNOWN])])
async def test_an_append_is_made_again_with_the_new_id_when_all_of_it_was_refused(
    error: TidemarkError,
) -> None:
    table = Table()
    partitions = NamedPartitions(table, table.forget)
    await partitions.into(SHARD, "late", Refusing())
    table.partitions = {"late": PartitionId(3)}
    append = Refusing(error)
    assert await partitions.into(SHARD, "late", append) == 2
    assert append.given[0] != append.given[1]
    table.partitions = {"late": PartitionId(4)}
    with pytest.raises(Unrecoverable):  # a second time in the same call
        await partitions.into(SHARD, "late", Refusing(UNKNOWN, UNKNOWN))


@pytest.mark.parametrize(
    "error",
    [
        AppendsFailed([UNKNOWN, OutcomeUnknown("it may be stored")]),
        AppendsFailed([UNKNOWN, object()]),
        OutcomeUnknown("it may be stored"),
    ],
)
async def test_an_append_of_which_a_part_may_be_stored_is_not_made_again(
    error: TidemarkError,
) -> None:
    table = Table()
    partitions = NamedPartitions(table, table.forget)
    await partitions.into(SHARD, "late", Refusing())
    table.partitions = {"late": PartitionId(3)}
    append = Refusing(error)
    with pytest.raises(type(error)):
        await partitions.into(SHARD, "late", append)
    assert len(append.given) == 1


async def test_a_refusal_that_has_another_cause_is_raised() -> None:
    table = Table()
    partitions = NamedPartitions(table, table.forget)
    for asked in (1, 2):  # the id is fresh; it is asked for again and the same
        append = Refusing(UNKNOWN)
        with pytest.raises(Unrecoverable):
            await partitions.into(SHARD, "late", append)
        assert (len(append.given), table.asked) == (1, asked)


async def test_a_partition_or_a_collection_that_is_gone_is_named() -> None:
    table = Table()
    partitions = NamedPartitions(table, table.forget)
    await partitions.into(SHARD, "late", Refusing())
    table.partitions = {}
    with pytest.raises(UnknownDefinition, match="'trains' has no partition 'late'"):
        await partitions.into(SHARD, "late", Refusing(UNKNOWN))
    table.found = None
    with pytest.raises(UnknownDefinition, match="no collection with id 7"):
        await partitions.into(SHARD, "late", Refusing())
    assert table.forgotten == 1


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"schema": None}, "has no schema"),
        ({"partitions": 0}, "of an earlier release"),
        ({"database": "sales"}, r"show_partitions\('trains', database='sales'\) lists the 1 "),
    ],
)
async def test_what_has_no_such_partition_is_said_with_its_reason(
    changed: dict[str, Any], cause: str
) -> None:
    table = Table(**changed)
    append = Refusing()
    with pytest.raises(TidemarkError, match=cause):
        await NamedPartitions(table, table.forget).into(SHARD, "early", append)
    assert append.given == []


async def test_no_more_names_are_remembered_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.client.append.named_partitions.REMEMBERED_MAX", 2)
    table = Table()
    table.partitions = {name: PartitionId(at) for at, name in enumerate("abc", 2)}
    partitions = NamedPartitions(table, table.forget)
    for name in "abcbca":
        await partitions.into(SHARD, name, Refusing())
    assert table.asked == 4
