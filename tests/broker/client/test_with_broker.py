"""The client against a real broker in the same process, on loopback and its own data folder."""

import asyncio
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from broker.app import Broker, bind, run_broker
from broker.client import (
    Client,
    InvalidArgument,
    Message,
    NoSuchCollection,
    OutOfRange,
    Received,
    Unrecoverable,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadAddress, BadTarget, NotLocal
from broker.core.sharding import shard_of
from broker.data_folder import hold
from broker.model.message import MessageType
from broker.process_settings import Settings

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_7v0")


@asynccontextmanager
async def running(folder: Path, bound: socket.socket | None = None) -> AsyncIterator[Broker]:
    settings = Settings(data_dir=folder, listen="127.0.0.1:0", pchannels=3, drain_s=1)
    with bound or bind(settings.listen) as listening, hold(folder) as held:
        async with run_broker(settings, held, listening) as broker:
            yield broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running(tmp_path)) as started,
    ):
        yield started.address


async def read_now(log: Client, target: str, **options: object) -> list[Received]:
    reader = log.read(target, until="now", **options)  # type: ignore[arg-type]
    return [message async for message in reader.messages()]


async def test_what_was_appended_is_read_back_with_everything_it_had(broker: str) -> None:
    async with connect(broker) as log:
        properties = {"source": "test", "ünï": "çødé"}
        landed = await log.append(VCHANNEL, b"\x00payload\xff", key=b"\xfe", properties=properties)
        (message,) = await read_now(log, VCHANNEL)
        assert (message.id, message.tick, message.vchannel) == (landed.id, landed.tick, VCHANNEL)
        assert (message.payload, message.key, message.properties) == (
            b"\x00payload\xff",
            b"\xfe",
            properties,
        )
        assert message.type == MessageType.INSERT
        assert message.collection is None


async def test_type_version_and_header_are_sent_as_told(broker: str) -> None:
    async with connect(broker) as log:
        await log.append(VCHANNEL, b"", type=MessageType.DELETE, version=2, header=b"\x08\x01")
        (message,) = await read_now(log, VCHANNEL)
        assert (message.type, message.tags["_v"]) == (MessageType.DELETE, "2")
        assert message.tags["_h"] == b64encode(b"\x08\x01").decode()


@pytest.mark.parametrize("key", ["AA", b"AA", 7, -1])
async def test_rows_go_to_the_shard_of_their_key(broker: str, key: str | bytes | int) -> None:
    async with connect(broker) as log:
        flights = await log.collections.create("flights", shards=3)
        landed = await log.append("flights", b"row", key=key)
        assert landed.vchannel == flights.vchannels[shard_of(key, 3)]
        (message,) = await read_now(log, "flights")
        assert message.collection == "flights"
        assert message.key == (
            b"AA" if key in ("AA", b"AA") else int(key).to_bytes(8, "little", signed=True)
        )


async def test_rows_without_a_key_take_turns(broker: str) -> None:
    async with connect(broker) as log:
        flights = await log.collections.create("flights", shards=3)
        landed = await log.append_messages("flights", [Message(b"%d" % it) for it in range(6)])
        assert sorted(it.vchannel for it in landed) == sorted(flights.vchannels * 2)


async def test_each_vchannel_of_a_collection_is_read_in_order_and_completely(broker: str) -> None:
    async with connect(broker) as log:
        flights = await log.collections.create("flights", shards=3)
        sent = [Message(b"%d" % it, key=b"%d" % (it % 17)) for it in range(500)]
        landed = await log.append_messages("flights", sent)
        seen = await read_now(log, "flights")
        assert sorted(it.payload for it in seen) == sorted(it.payload for it in sent)
        for vchannel in flights.vchannels:
            of_shard = [it.id for it in seen if it.vchannel == vchannel]
            assert of_shard == sorted(of_shard)
            assert of_shard == sorted(it.id for it in landed if it.vchannel == vchannel)


async def test_collections_are_created_got_listed_and_dropped(broker: str) -> None:
    async with connect(broker) as log:
        created = await log.collections.create("flights", shards=2)
        assert await log.collections.get("flights") == created
        assert await log.collections.list() == [created]
        assert await log.collections.resolve(["flights", VCHANNEL]) == {
            "flights": created.vchannels,
            VCHANNEL: (VCHANNEL,),
        }
        with pytest.raises(InvalidArgument):
            await log.collections.create("flights", shards=2)
        await log.collections.drop("flights")
        assert await log.collections.list() == []
        for call in (log.collections.get("flights"), log.collections.drop("flights")):
            with pytest.raises(NoSuchCollection):
                await call


async def test_a_collection_made_anew_gets_its_rows_on_its_new_vchannels(broker: str) -> None:
    async with connect(broker) as log:
        await log.collections.create("flights", shards=1)
        await log.append("flights", b"old")
        await log.collections.drop("flights")
        anew = await log.collections.create("flights", shards=2)
        assert (await log.append("flights", b"new")).vchannel in anew.vchannels
        assert [it.payload for it in await read_now(log, "flights")] == [b"new"]


async def test_a_name_that_nothing_has_is_an_error_at_once(broker: str) -> None:
    async with connect(broker) as log:
        with pytest.raises(NoSuchCollection):
            await log.append("nowhere", b"")
        with pytest.raises(NoSuchCollection):
            await anext(log.read("nowhere"))
        with pytest.raises(BadTarget):
            await log.append(NewVChannel("other-cluster-dml_1_7v0"), b"")


async def test_a_text_payload_is_refused_before_anything_is_sent(broker: str) -> None:
    async with connect(broker) as log:
        with pytest.raises(TypeError, match="payload must be bytes"):
            await log.append(VCHANNEL, "text")  # type: ignore[arg-type]
        assert await read_now(log, VCHANNEL) == []


@pytest.mark.parametrize("server", ["nonsense", ":19531", "host:", "host:http", "host:70000"])
async def test_an_invalid_address_is_refused(server: str) -> None:
    with pytest.raises(BadAddress, match=f"^'{server}' is not HOST:PORT, such as 127.0.0.1:19531"):
        async with connect(server):
            pass


async def test_a_refusal_shows_no_traceback_but_its_own(broker: str) -> None:
    async with connect(broker) as log:
        with pytest.raises(InvalidArgument) as refused:
            await log.collections.create("not a name")
        with pytest.raises(NoSuchCollection) as unknown:
            await log.collections.drop("nowhere")
    for error in (refused.value, unknown.value):
        assert error.__cause__ is None
        assert error.__suppress_context__


async def test_a_read_starts_where_it_is_told(broker: str) -> None:
    async with connect(broker) as log:
        landed = [await log.append(VCHANNEL, b"%d" % it) for it in range(4)]
        expected = [b"2", b"3"]
        for start in (landed[2].id, ("tick", landed[2].tick), {VCHANNEL: landed[2].id}):
            assert [it.payload for it in await read_now(log, VCHANNEL, start=start)] == expected
        assert await read_now(log, VCHANNEL, start="latest") == []
        with pytest.raises(OutOfRange):
            await read_now(log, VCHANNEL, start=landed[3].id + 1000)


async def test_the_latest_begins_when_the_reader_is_opened(broker: str) -> None:
    async with connect(broker) as log:
        await log.append(VCHANNEL, b"before")
        async with log.read(VCHANNEL, start="latest") as reader:
            await log.append(VCHANNEL, b"after")
            batch = await anext(reader)
        assert [it.payload for it in batch.messages] == [b"after"]
        assert str(batch.vchannel) == VCHANNEL


async def test_an_id_means_nothing_for_several_vchannels(broker: str) -> None:
    async with connect(broker) as log:
        await log.collections.create("flights", shards=2)
        with pytest.raises(BadTarget, match="its own ids"):
            await read_now(log, "flights", start=3)


async def test_a_range_has_exactly_its_ids_and_ends(broker: str) -> None:
    async with connect(broker) as log:
        landed = [await log.append(VCHANNEL, b"%d" % it) for it in range(5)]
        await log.append(
            NewVChannel(VCHANNEL.replace("7v0", "8v0")), b"another vchannel of the same pchannel"
        )
        ids = [it.id for it in landed]
        reader = log.read_range(VCHANNEL, ids[1], ids[4])
        assert [it.id async for it in reader.messages()] == ids[1:4]
        held = (await log.offsets.describe([VCHANNEL]))[VCHANNEL]
        rest = log.read_range(VCHANNEL, ids[4], held.next_id)
        assert [it.id async for it in rest.messages()] == ids[4:]
        assert [it async for it in log.read_range(VCHANNEL, 3, 3)] == []


async def test_a_whole_pchannel_is_read_by_its_name(broker: str) -> None:
    async with connect(broker) as log:
        for it in (7, 8):
            await log.append(NewVChannel(f"by-dev-rootcoord-dml_1_{it}v0"), b"%d" % it)
        seen = await read_now(log, "by-dev-rootcoord-dml_1")
        assert [it.vchannel for it in seen] == [f"by-dev-rootcoord-dml_1_{it}v0" for it in (7, 8)]


async def test_types_choose_and_ticks_are_shown_on_demand(broker: str) -> None:
    async with connect(broker) as log:
        await log.append(VCHANNEL, b"insert")
        await log.append(VCHANNEL, b"delete", type=MessageType.DELETE)
        seen = await read_now(log, VCHANNEL, types=[MessageType.DELETE])
        assert [it.payload for it in seen] == [b"delete"]
        async with log.read(VCHANNEL, with_ticks=True) as reader:
            async for batch in reader:
                if any(it.type == MessageType.TIME_TICK for it in batch.messages):
                    assert reader.closed_tick >= batch.closed_tick > 0
                    break


async def test_seek_and_advance_lead_through_a_log(broker: str) -> None:
    async with connect(broker) as log:
        landed = [await log.append(VCHANNEL, b"x" * 1000) for _ in range(4)]
        assert await log.offsets.seek(VCHANNEL, landed[2].tick) == landed[2].id
        first, end = landed[0].id, landed[3].id + 1
        assert (
            first
            < await log.offsets.advance(VCHANNEL, first, end, 1)
            <= await log.offsets.advance(VCHANNEL, first, end, 1_000_000)
        )


async def test_a_message_over_the_servers_limit_is_refused_and_the_stream_goes_on(
    broker: str,
) -> None:
    async with connect(broker) as log:
        results = await asyncio.gather(
            log.append(VCHANNEL, bytes(9 * 1024 * 1024)),
            log.append(VCHANNEL, b"small"),
            return_exceptions=True,
        )
        assert isinstance(results[0], Unrecoverable)
        assert [it.payload for it in await read_now(log, VCHANNEL)] == [b"small"]


async def test_health_channels_and_actors_say_what_runs(broker: str) -> None:
    async with connect(broker) as log:
        health = await log.admin.health()
        assert (health.state, health.channels_open, health.cluster) == ("healthy", 3, "by-dev")
        assert [it.name for it in await log.admin.channels()] == [
            f"by-dev-rootcoord-dml_{it}" for it in range(3)
        ]
        paths = [it.path for it in await log.admin.actors()]
        assert paths == sorted(paths)
        assert any(it.endswith("/appender") for it in paths)


async def test_a_reader_that_stops_holds_back_its_stream_and_nobody_else(broker: str) -> None:
    """32 MiB lie there; of the reader's share only its window may have moved."""
    async with connect(broker) as log, log.read(VCHANNEL) as slow:
        for _ in range(8):
            large = [Message(bytes(64 * 1024)) for _ in range(64)]
            await log.append_messages(VCHANNEL, large, atomic=False)
        assert len(await read_now(log, VCHANNEL)) == 512
        count = 0
        async for batch in slow:
            assert sum(len(it.payload) for it in batch.messages) <= 2 * 1024 * 1024
            count += len(batch.messages)
            if count == 512:
                break


async def test_a_client_outlives_its_broker_and_continues_with_the_next(tmp_path: Path) -> None:
    """A reader and an append that wait meanwhile go on; nothing is lost, nothing comes twice."""
    first_may_end, second_may_end = anyio.Event(), anyio.Event()

    async def one_after_the_other() -> None:
        with bind("127.0.0.1:0") as bound:
            again = bound.dup()
            ports.append(bound.getsockname()[1])
            async with running(tmp_path, bound):
                started.set()
                await first_may_end.wait()
        async with running(tmp_path, again):
            await second_may_end.wait()

    ports: list[int] = []
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one_after_the_other)
        await started.wait()
        async with connect(f"127.0.0.1:{ports[0]}") as log:
            some = [Message(b"%d" % it) for it in range(50)]
            sent = await log.append_messages(VCHANNEL, some, atomic=False)
            reader = log.read(VCHANNEL)
            seen = [it.id for it in (await anext(reader)).messages]
            first_may_end.set()
            # One broker stops and another starts meanwhile.
            sent.append(await log.append(VCHANNEL, b"after", deadline_s=60.0))
            while len(seen) < len(sent):
                seen += [it.id for it in (await anext(reader)).messages]
        second_may_end.set()
    assert seen == [it.id for it in sent]


async def test_a_reader_may_begin_in_spite_of_a_pause_and_others_wait(broker: str) -> None:
    taken: list[bytes] = []

    async def held_back(log: Client) -> bool:
        return any(it.extra.get("paused") == "1" for it in await log.admin.actors())

    async def take(log: Client) -> None:
        taken.extend([it.payload async for it in log.read(VCHANNEL, until="now").messages()])

    async with connect(broker) as log:
        landed = await log.append(VCHANNEL, b"a")
        await log.admin.pause_consumption()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take, log)
                while not await held_back(log):
                    await anyio.lowlevel.checkpoint()
                async for batch in log.read(VCHANNEL, ignore_pause=True, with_ticks=True):
                    if batch.closed_tick > landed.tick + (500 << 18):
                        break
                assert taken == []
                await log.admin.resume_consumption()
            assert taken == [b"a"]


async def test_the_latest_tick_of_a_vchannel_is_that_of_its_newest_visible_message(
    broker: str,
) -> None:
    async with connect(broker) as log:
        landed = await log.append(VCHANNEL, b"a")
        assert await log.admin.get_latest_mvcc_timestamp_if_local(VCHANNEL) == landed.tick
        async with log.txn(VCHANNEL) as txn:
            await txn.append(b"b")
            assert await log.admin.get_latest_mvcc_timestamp_if_local(VCHANNEL) == landed.tick
            commit = await txn.commit()
        assert await log.admin.get_latest_mvcc_timestamp_if_local(VCHANNEL) == commit.tick
        cut = await log.cut(VCHANNEL, tick=commit.tick)
        assert cut.tick == commit.tick, "it is closed already"
        with pytest.raises(NotLocal) as raised:
            await log.admin.get_latest_mvcc_timestamp_if_local("by-dev-rootcoord-dml_99_1v0")
        assert not raised.value.retriable
        with pytest.raises(InvalidArgument):
            await log.admin.get_latest_mvcc_timestamp_if_local("")


async def test_an_invalid_end_and_an_invalid_message_are_refused(broker: str) -> None:
    async with connect(broker) as log:
        with pytest.raises(BadTarget, match="'soon' is no end"):
            async for _ in log.read(VCHANNEL, until="soon"):  # type: ignore[arg-type]
                pass
        for atomic in (True, False):
            with pytest.raises(TypeError, match="must be a Message, not bytes"):
                await log.append_messages(VCHANNEL, [b"x"], atomic=atomic)  # type: ignore[list-item]
