"""Node processes under signals: their channels go on elsewhere, nothing acknowledged is lost."""

import os
import signal
from pathlib import Path

import anyio
import grpc.aio
import pytest

from broker.client import connect
from schemas.generated.milvus.proto import streaming as wire
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.wire import Produced, message, produce_request, scan_produce_response
from tests.broker_process import BrokerProcess
from tests.create_headers import create_header
from tests.roles_processes import GUARD_S, is_alive, node_pids, owners, until
from tests.wire.peer import Ended, Peer, PeerStream
from tests.wire.small_broker import CONSUME, NODE_CONTROL, P0, PRODUCE

LEASE_S = "10"
"""The channels of a paused node move when it is over; a node that a busy machine holds up keeps
its own."""
PAYLOAD = b"row %d"
ZOMBIE = b"written by a zombie"


async def test_a_killed_nodes_channels_go_on_elsewhere_and_it_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=4)
            assert set((await owners(log)).values()) == {1, 2}
            pids = await node_pids(log)
            written = []
            with anyio.fail_after(GUARD_S):
                for number in range(200):
                    if number == 100:
                        os.kill(pids[1], signal.SIGKILL)
                    await log.append("rows", PAYLOAD % number, deadline_s=GUARD_S)
                    written.append(PAYLOAD % number)

            async def is_whole() -> bool:
                back = (await node_pids(log)).get(1) not in (None, pids[1])
                return back and len(await owners(log)) == 4

            await until(is_whole)
            read = [it.payload async for it in log.read("rows", until="now").messages()]
            assert set(written) <= set(read)
            cut = await log.cut("rows")
            assert len(cut.ends) == 4
            for sync_up in (False, True):
                sent = await log.broadcast.append(
                    "rows", b"everywhere", deadline_s=GUARD_S, ack_sync_up=sync_up
                )
                assert len(sent.results) == 4
            remaining = list((await node_pids(log)).values())
        assert broker.terminate() == 0
    assert not any(map(is_alive, remaining))


async def test_a_channel_that_somebody_removes_from_its_node_is_served_again(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="2") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=2)
            before = {it.name: it for it in await log.admin.channels()}
            removed = before[P0]
            channel = wire.PChannelInfo(name=P0, term=removed.term)
            request = wire.StreamingNodeManagerRemoveRequest(pchannel=channel)
            async with grpc.aio.insecure_channel(removed.address) as at_node:
                await Peer(at_node).call(NODE_CONTROL + "Remove", bytes(request))

            async def is_back() -> bool:
                found = {it.name: it for it in await log.admin.channels()}
                return found[P0].term > removed.term and found[P0].state == removed.state

            await until(is_back)
            await log.append("rows", b"later", deadline_s=GUARD_S)


async def test_no_node_outlives_its_coordinator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="2") as broker:
        async with connect(broker.address) as log:
            pids = list((await node_pids(log)).values())
        assert len(pids) == 2
        broker.kill()

        async def are_gone() -> bool:
            return not any(map(is_alive, pids))

        await until(are_gone)


async def test_a_paused_owner_that_wakes_gets_nothing_acknowledged_or_delivered(
    tmp_path: Path,
) -> None:
    settings = {"nodes": "2", "pchannels": "2", "node_lease_s": LEASE_S}
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=2)
            before = {it.name: it for it in await log.admin.channels()}
            mine = next(it for it in before.values() if it.node_id == 1)
            vchannel = mine.vchannels[0]
            await log.append(vchannel, b"before")
            pid = (await node_pids(log))[1]
            async with grpc.aio.insecure_channel(mine.address) as channel:
                peer = Peer(channel)
                header = create_header(CreateHeader(mine.name, mine.term))
                producer = peer.open(PRODUCE, {CREATE_PRODUCER: header})
                consumer = peer.open(CONSUME, {CREATE_CONSUMER: header})
                await producer.receive()
                try:
                    os.kill(pid, signal.SIGSTOP)

                    async def has_moved() -> bool:
                        return (await owners(log)).get(mine.name) == 2

                    await until(has_moved)
                    for number in range(1, 20):
                        await producer.send(produce_request(number, zombie_message(vchannel)))
                    await log.append(vchannel, b"after", deadline_s=GUARD_S)
                finally:
                    os.kill(pid, signal.SIGCONT)
                assert not await acknowledged(producer)
                consumer.call.cancel()
            found = [it.payload async for it in log.read(vchannel, until="now").messages()]
            assert found == [b"before", b"after"]
        broker.terminate()


def zombie_message(vchannel: str) -> bytes:
    return message(ZOMBIE, {"_t": "2", "_v": "1", "_h": "", "_vc": vchannel})


async def acknowledged(producer: PeerStream) -> list[Produced]:
    """Everything that the zombie acknowledges until it ends the stream."""
    found = list[Produced]()
    while True:
        try:
            answer = scan_produce_response(await producer.receive())
        except (Ended, TimeoutError):
            return found
        if isinstance(answer, Produced):
            found.append(answer)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_node_that_is_told_to_stop_gives_its_channels_away(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="2") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=2)
            pid = (await node_pids(log))[1]
            os.kill(pid, stop)

            async def has_moved() -> bool:
                return set((await owners(log)).values()) == {2} or not is_alive(pid)

            await until(has_moved)
            for number in range(10):
                await log.append("rows", PAYLOAD % number, deadline_s=GUARD_S)
        broker.terminate()
