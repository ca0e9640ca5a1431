"""Segments of a real broker, over its protocol: listed, reserved, sealed, acknowledged, dropped."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from broker.client import Client, Message, connect
from broker.client.errors import ChannelNotExist, InvalidArgument
from broker.client.master.segment_calls import SegmentAssignment, SegmentLoad, SegmentRequest
from broker.core.naming import collection_id_of
from broker.model.ids import VChannelName
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from tests.broker_process import BrokerProcess, free_port

DEFAULT, OTHER = 4001, 4002
WAIT_S_MAX = 60.0
"""Against hanging only."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    started = BrokerProcess(tmp_path / "data", f"127.0.0.1:{free_port()}", pchannels="2")
    try:
        yield started
    finally:
        started.kill()


async def announced(log: Client, name: str = "rows") -> tuple[int, VChannelName]:
    """A collection that its log knows, with two partitions."""
    created = await log.collections.create(name)
    (vchannel,) = created.vchannels
    id = collection_id_of(vchannel)
    assert id is not None
    header = messages.CreateCollectionMessageHeader(
        collection_id=id, partition_ids=[DEFAULT, OTHER]
    )
    message = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
    await log.raw_append(vchannel, message)
    return id, vchannel


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, until the answer is yes."""
    with anyio.fail_after(WAIT_S_MAX):
        while not await found():  # noqa: ASYNC110 - another process is looked at
            await anyio.sleep(0.05)


async def one_segment(log: Client, id: int, state: SegmentMetaState) -> SegmentMeta:
    found: list[SegmentMeta] = []

    async def there() -> bool:
        try:
            shown = await log.master.show_segments(id, DEFAULT)
        except ChannelNotExist:  # its log has not been saved yet
            return False
        found[:] = [it for it in shown if it.state is state]
        return bool(found)

    await until(there)
    (segment,) = found
    return segment


async def test_a_segment_of_a_log_is_shown_from_its_creation_to_its_drop(
    broker: BrokerProcess,
) -> None:
    async with connect(broker.address) as log:
        id, vchannel = await announced(log)
        await log.append_batch(vchannel, [b"row"] * 5)
        growing = await one_segment(log, id, SegmentMetaState.GROWING)
        assert (growing.vchannel, growing.partition_id) == (vchannel, DEFAULT)
        assert (growing.origin, growing.close_tick) == (SegmentOrigin.LOG, 0)
        assert await log.master.describe_segment(id, growing.id) == 0
        assert await log.master.seal_collection(id) == 1
        flushed = await one_segment(log, id, SegmentMetaState.FLUSHED)
        assert (flushed.id, flushed.rows) == (growing.id, 5)
        assert flushed.close_tick > flushed.open_tick
        assert [it.id async for it in log.master.list_flushes()] == [flushed.id]
        assert await log.master.acknowledge_flushes([flushed.id, 5]) == [5]
        assert await log.master.acknowledge_flushes([flushed.id]) == []
        assert [it async for it in log.master.list_flushes()] == []
        assert await log.master.get_segment_states([5, flushed.id]) == {
            5: "not_exist",
            flushed.id: "flushed",
        }
        header = messages.DropCollectionMessageHeader(collection_id=id)
        dropped = Message(b"", type=MessageType.DROP_COLLECTION, header=bytes(header))
        await log.raw_append(vchannel, dropped)

        async def is_dropped() -> bool:
            return await log.master.get_segment_states([flushed.id]) == {flushed.id: "dropped"}

        await until(is_dropped)


async def test_segments_and_flushes_survive_a_kill(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    data = tmp_path / "data"
    broker = BrokerProcess(data, address, pchannels="2")
    try:
        with anyio.fail_after(2 * WAIT_S_MAX):
            async with connect(address) as log:
                id, vchannel = await announced(log)
                await log.append_batch(vchannel, [b"row"] * 5)
                broker.kill()
                broker = BrokerProcess(data, address, pchannels="2")
                growing = await one_segment(log, id, SegmentMetaState.GROWING)
                request = SegmentRequest(100, vchannel, "rows")
                (assigned,) = await log.master.assign_segment_id([request])
                assert assigned.error == ""
                await log.master.seal_collection(id)
                broker.kill()
                broker = BrokerProcess(data, address, pchannels="2")
                # The order to seal may be lost with the owner; the reservation is not.
                await log.master.seal_collection(id)

                async def both_flushed() -> bool:
                    ids = [growing.id, assigned.segment_id]
                    states = await log.master.get_segment_states(ids)
                    return set(states.values()) == {"flushed"}

                await until(both_flushed)
                flushes = [it.id async for it in log.master.list_flushes()]
                assert sorted(flushes) == sorted([growing.id, assigned.segment_id])
    finally:
        broker.kill()


async def test_rows_are_reserved_exactly_and_one_refused_request_fails_no_other(
    broker: BrokerProcess,
) -> None:
    async with connect(broker.address) as log:
        id, vchannel = await announced(log)
        wanted = SegmentRequest(100, vchannel, "rows")
        answers: list[SegmentAssignment] = []

        async def known() -> bool:
            answers[:] = await log.master.assign_segment_id(
                [
                    wanted,
                    SegmentRequest(600_000_000, vchannel, "rows"),
                    SegmentRequest(0, vchannel, "rows"),
                    SegmentRequest(1, "nowhere_1v0", "rows"),
                    SegmentRequest(1, vchannel, "unknown"),
                    SegmentRequest(1, vchannel, "rows", "unknown"),
                    wanted,
                ]
            )
            return not answers[0].error

        await until(known)
        first, huge, none, nowhere, collection, partition, last = answers
        assert (first.count, last.count) == (100, 100)
        assert first.segment_id == last.segment_id
        # Ticks are milliseconds << 18.
        states = await log.master.get_segment_states([first.segment_id])
        assert states == {first.segment_id: "growing"}
        (segment,) = [it for it in await log.master.show_segments(id) if it.id == first.segment_id]
        assert first.expire_tick - segment.open_tick >= 2000 << 18
        assert segment.origin is SegmentOrigin.RESERVED
        assert "fit into one segment" in huge.error
        assert "at least 1" in none.error
        assert "no channel" in nowhere.error
        assert "no collection" in collection.error
        assert "no partition" in partition.error


async def test_statistics_of_a_query_node_close_a_reserved_segment(broker: BrokerProcess) -> None:
    async with connect(broker.address) as log:
        id, vchannel = await announced(log)

        async def reserved() -> bool:
            answers[:] = await log.master.assign_segment_id([SegmentRequest(100, vchannel, "rows")])
            return not answers[0].error

        answers: list[SegmentAssignment] = []
        await until(reserved)
        segment_id = answers[0].segment_id
        full = SegmentLoad(segment_id, 400 << 20, 100)
        unknown = await log.master.report_query_node(
            1,
            5,
            [SegmentLoad(99, 1, 1), SegmentLoad(segment_id, 1, 1, recently_modified=False), full],
        )
        assert unknown == [99]

        async def flushed() -> bool:
            states = await log.master.get_segment_states([segment_id])
            return states == {segment_id: "flushed"}

        # Flushed it is when its reservation has ended, on a slow machine already.
        states = await log.master.get_segment_states([segment_id])
        assert states in ({segment_id: "sealed"}, {segment_id: "flushed"})
        await until(flushed)
        (segment,) = [it for it in await log.master.show_segments(id) if it.id == segment_id]
        assert (segment.rows, segment.size_bytes) == (100, 400 << 20)
        assert segment.close_tick >= answers[0].expire_tick


async def test_a_segment_with_too_many_files_is_flushed(broker: BrokerProcess) -> None:
    async with connect(broker.address) as log:
        id, vchannel = await announced(log)
        await log.append_batch(vchannel, [b"row"])
        growing = await one_segment(log, id, SegmentMetaState.GROWING)
        assert await log.master.report_binlogs({growing.id: 32, 99: 1}) == [99]
        assert await log.master.get_segment_states([growing.id]) == {growing.id: "growing"}
        assert await log.master.report_binlogs({growing.id: 33}) == []
        assert (await one_segment(log, id, SegmentMetaState.FLUSHED)).id == growing.id


async def test_unknown_collections_partitions_and_segments_are_errors(
    broker: BrokerProcess,
) -> None:
    async with connect(broker.address) as log:
        id, vchannel = await announced(log)
        await log.append_batch(vchannel, [b"row"])
        segment = await one_segment(log, id, SegmentMetaState.GROWING)
        with pytest.raises(ChannelNotExist, match="collection 77"):
            await log.master.show_segments(77)
        with pytest.raises(ChannelNotExist, match="partition 5"):
            await log.master.show_segments(id, 5)
        with pytest.raises(ChannelNotExist, match="collection 77"):
            await log.master.describe_segment(77, segment.id)
        with pytest.raises(ChannelNotExist, match="segment 6"):
            await log.master.describe_segment(id, 6)
        with pytest.raises(ChannelNotExist, match="collection 77"):
            await log.master.seal_collection(77)
        with pytest.raises(InvalidArgument, match="1 to 1000"):
            await log.master.assign_segment_id([])


async def test_owners_in_other_processes_report_and_obey(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address, pchannels="2", nodes="2")
    try:
        with anyio.fail_after(2 * WAIT_S_MAX):
            async with connect(address) as log:
                id, vchannel = await announced(log)
                await log.append_batch(vchannel, [b"row"])
                first = await one_segment(log, id, SegmentMetaState.GROWING)
                assert await log.master.report_binlogs({first.id: 33}) == []
                await one_segment(log, id, SegmentMetaState.FLUSHED)
                await log.append_batch(vchannel, [b"row"])
                second = await one_segment(log, id, SegmentMetaState.GROWING)
                request = SegmentRequest(100, vchannel, "rows")
                (assigned,) = await log.master.assign_segment_id([request])
                assert await log.master.seal_collection(id) == 1

                async def all_flushed() -> bool:
                    ids = [first.id, second.id, assigned.segment_id]
                    states = await log.master.get_segment_states(ids)
                    return list(states.values()) == ["flushed"] * 3

                await until(all_flushed)
    finally:
        broker.terminate()
