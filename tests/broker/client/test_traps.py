"""Appends and reads that would lose data in silence, or wait for what never comes: refused."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import anyio
import pyarrow as pa
import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import (
    AppendsFailed,
    Client,
    Message,
    NoSuchCollection,
    SchemaVersionMismatch,
    connect,
)
from broker.client.append.prepare import batch_header
from broker.client.cluster.targets import NewVChannel, Shards
from broker.client.errors import BadTarget, NoSuchVChannel, OutdatedTarget
from broker.model.ids import VChannelName
from tests.local_broker import local_broker

pytestmark = pytest.mark.asyncio
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
UNKNOWN = "by-dev-rootcoord-dml_0_999v9"
NUMBERS = count()
AT_ONCE_S = 20
"""Of a machine under load; what is tested used to wait for ever."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that runs in a thread and a loop of its own, for all tests together."""
    folder = tmp_path_factory.mktemp("broker")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(folder, pchannels=3)) as broker,
    ):
        yield broker.address


async def in_txn(log: Client, target: str) -> None:
    async with log.txn(target) as txn:
        await txn.append(b"x")


async def batch_in_txn(log: Client, target: str) -> None:
    async with log.txn(target) as txn:
        await txn.append_batch([b"x"])


async def staged(log: Client, target: str) -> None:
    async with log.stage("job", 1, next(NUMBERS)) as stage:
        await stage.append(target, b"x")


async def staged_batch(log: Client, target: str) -> None:
    async with log.stage("job", 1, next(NUMBERS)) as stage:
        await stage.append_batch(target, [b"x"])


async def soon(log: Client, target: str) -> None:
    await (await log.append_soon(target, Message(b"x")))


async def drained(reader: AsyncIterator[object]) -> None:
    async for _ in reader:
        pass


Use = Callable[[Client, str], Awaitable[object]]
APPENDS: dict[str, Use] = {
    "append": lambda log, to: log.append(to, b"x"),
    "append_soon": soon,
    "append_batch": lambda log, to: log.append_batch(to, [b"x"]),
    "append_messages": lambda log, to: log.append_messages(to, [Message(b"x"), Message(b"y")]),
    "append_singly": lambda log, to: log.append_messages(to, [Message(b"x")], atomic=False),
    "txn.append": in_txn,
    "txn.append_batch": batch_in_txn,
    "stage.append": staged,
    "stage.append_batch": staged_batch,
}
READS: dict[str, Use] = {
    "read": lambda log, of: drained(log.read(of)),
    "read_batches": lambda log, of: drained(log.read_batches(of)),
    "read_range": lambda log, of: drained(log.read_range(of, 1, 3)),
    "cut": lambda log, of: log.cut(of),
    "measure": lambda log, of: log.measure(of, after=0, until=1),
    "cursor": lambda log, of: log.cursor("mine").move(1 << 40, of),
    "broadcast": lambda log, of: log.broadcast.append([of], b"x"),
}


@pytest.mark.parametrize("by_vchannel", [False, True])
@pytest.mark.parametrize("how", [*APPENDS, "broadcast"])
async def test_a_collection_with_a_schema_takes_no_messages(
    address: str, how: str, by_vchannel: bool
) -> None:
    async with connect(address) as log:
        made = await log.collections.create(f"typed_{next(NUMBERS)}", schema=SCHEMA)
        target = made.vchannels[0] if by_vchannel else made.name
        with pytest.raises(SchemaVersionMismatch, match=f"'{made.name}' .* use append_arrow"):
            await (APPENDS | READS)[how](log, target)
        await log.append_arrow(target, pa.table({"k": [1], "t": ["a"]}, schema=SCHEMA))
        assert len([it async for it in log.read(target, until="now").messages()]) == 1


async def test_a_client_that_does_not_check_is_refused_by_the_server(address: str) -> None:
    async with connect(address) as log:
        made = await log.collections.create(f"typed_{next(NUMBERS)}", schema=SCHEMA)
        (vchannel,) = made.vchannels
        unchecked = Shards(None, (vchannel,))
        with pytest.raises(SchemaVersionMismatch, match=f"'{made.name}' .* takes rows"):
            await log._appends.one(unchecked, Message(b"x"), 10.0)
        with pytest.raises(SchemaVersionMismatch):
            await log.raw_append(vchannel, Message(b"x"))
        header = batch_header(vchannel, Message(b""), 10.0)
        with pytest.raises(SchemaVersionMismatch):
            await log._appends.batch(header, [b"x", b"y"], None)
        assert [it async for it in log.read(vchannel, until="now").messages()] == []


@pytest.mark.parametrize("how", APPENDS)
async def test_a_collection_that_another_client_made_anew_with_a_schema_takes_no_messages(
    address: str, how: str
) -> None:
    name = f"anew_{next(NUMBERS)}"
    async with connect(address) as log, connect(address) as other:
        old = await log.collections.create(name)
        await log.append(name, b"known as a collection of messages")
        await other.collections.drop(name)
        new = await other.collections.create(name, schema=SCHEMA)
        with pytest.raises((OutdatedTarget, AppendsFailed), match="was dropped"):
            await APPENDS[how](log, name)
        with pytest.raises(SchemaVersionMismatch):
            await APPENDS[how](log, name)
        for vchannel in (*old.vchannels, *new.vchannels):
            found = [it async for it in log.read(vchannel, until="now").messages()]
            assert len(found) == (vchannel in old.vchannels)


async def test_rows_for_a_dropped_collection_are_refused_and_the_next_call_finds_the_new_one(
    address: str,
) -> None:
    name = f"anew_{next(NUMBERS)}"
    table = pa.table({"k": [1], "t": ["a"]}, schema=SCHEMA)
    async with connect(address) as log, connect(address) as other:
        await log.collections.create(name, schema=SCHEMA)
        await log.append_arrow(name, table)
        await other.collections.drop(name)
        await other.collections.create(name, schema=SCHEMA)
        with pytest.raises(OutdatedTarget, match="was dropped") as raised:
            await log.append_arrow(name, table)
        assert raised.value.retriable
        await log.append_arrow(name, table)
        assert sum([it.num_rows async for it in log.read_arrow(name, until="now")]) == 1


async def test_a_dropped_collection_takes_no_more_messages_and_can_still_be_read(
    address: str,
) -> None:
    name = f"gone_{next(NUMBERS)}"
    async with connect(address) as log, connect(address) as other:
        (vchannel,) = (await log.collections.create(name)).vchannels
        await log.append(name, b"kept")
        await other.collections.drop(name)
        with pytest.raises(OutdatedTarget, match=f"of vchannel '{vchannel}' was dropped"):
            await log.append(name, b"x")
        with pytest.raises(NoSuchCollection):
            await log.append(name, b"x")
        found = [it.payload async for it in other.read(vchannel, until="now").messages()]
        assert found == [b"kept"]


@pytest.mark.parametrize("how", [*APPENDS, *READS])
async def test_a_vchannel_that_nothing_has_named_is_refused_at_once(address: str, how: str) -> None:
    async with connect(address) as log:
        with anyio.fail_after(AT_ONCE_S):
            with pytest.raises(NoSuchVChannel, match=f"there is no vchannel '{UNKNOWN}'"):
                await (APPENDS | READS)[how](log, UNKNOWN)
            with pytest.raises(NoSuchVChannel, match=r"pchannels of this cluster are .*_0 to 2"):
                await (APPENDS | READS)[how](log, "by-dev-rootcoord-dml_99_1v0")
            with pytest.raises(NoSuchVChannel, match="is not the control channel"):
                await (APPENDS | READS)[how](log, "by-dev-rootcoord-dml_1_vcchan")


@pytest.mark.parametrize("how", APPENDS)
@pytest.mark.parametrize("target", ["by-dev-rootcoord-dml_1", "by-dev-rootcoord-dml_0_vcchan"])
async def test_data_for_a_channel_that_is_no_vchannel_is_refused(
    address: str, how: str, target: str
) -> None:
    async with connect(address) as log:
        with pytest.raises(BadTarget, match=f"'{target}' is .*, which takes no data"):
            await APPENDS[how](log, target)


async def test_a_vchannel_exists_from_its_first_message_on_also_after_a_restart(
    tmp_path: Path,
) -> None:
    by_milvus, by_program = (f"by-dev-rootcoord-dml_{it}_7v0" for it in range(2))
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        # Over Milvus's Produce, as a message with a barrier goes.
        await log.raw_append(by_milvus, Message(b"first", barrier_time_tick=1))
        await log.append(NewVChannel(by_program), b"first")
        for name in (by_milvus, by_program):
            async with connect(broker.address) as other:
                await other.append(name, b"second")
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        for name in (by_milvus, by_program):
            found = [it.payload async for it in log.read(name, until="now").messages()]
            assert found == [b"first", b"second"]
            await log.append(name, b"third")
        with pytest.raises(NoSuchVChannel):
            await log.append(VChannelName(by_milvus + "0"), b"x")


async def test_names_with_dashes_and_dots_are_collections_like_others(address: str) -> None:
    async with connect(address) as log:
        made = await log.collections.create("my-app.events-1", shards=2)
        await log.append("my-app.events-1", b"x", key=b"k")
        (found,) = [it async for it in log.read("my-app.events-1", until="now").messages()]
        assert found.collection == "my-app.events-1"
        assert set((await log.cut("my-app.events-1")).ends) == set(made.vchannels)
        await log.collections.drop("my-app.events-1")
        with pytest.raises(NoSuchCollection):
            await log.append("my-app.events-1", b"x")
