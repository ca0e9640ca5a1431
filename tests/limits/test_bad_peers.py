"""Many peers at once that say nothing, half of something, or nonsense: gone soon, harming nobody.

What each of them meets exactly is tried in tests/wire; here a crowd comes to a real process.
"""

import logging
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import BrokerProcess, FreshBrokerProcess
from tests.wire.raw_peer import HELLO, RawCall, RawPeer, http_frame, raw
from tests.wire.small_broker import STATE

EACH = 40
IDLE_PEER_S = 0.5
WAITS_MAX = 10
"""A look comes every `IDLE_PEER_S`, and the second one cuts; the crowd has to be connected, too."""

SENT = {
    "nothing": b"",
    "half a preface": HELLO[:10],
    "half a frame": HELLO + http_frame(1, bytes(100), flags=4, stream=1)[:50],
    "garbage": b"\xff\x00 what is this \r\n\r\n" * 50,
}
(PCHANNEL,) = pchannel_names("by-dev", 1)
told = logging.getLogger("tests.limits")


async def test_a_crowd_of_bad_peers_is_cut_and_appends_go_on(tmp_path: Path) -> None:
    settings = {"pchannels": "1", "idle_peer_s": str(IDLE_PEER_S)}
    with FreshBrokerProcess(tmp_path / "data", **settings) as broker:
        async with connect(broker.address) as log, AsyncExitStack() as stack:
            await log.append(NewVChannel(f"{PCHANNEL}_1v0"), b"before")
            before_bytes, began_s = broker.resident_bytes(), anyio.current_time()
            peers = [
                (sent, await stack.enter_async_context(raw(broker)))
                for sent in SENT.values()
                for _ in range(EACH)
            ]
            everybody_is_gone = anyio.Event()
            slowest_s: list[float] = []
            waits: list[dict[str, str]] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append_until, everybody_is_gone, log, slowest_s)
                tasks.start_soon(wait_until, everybody_is_gone, broker, waits)
                async with anyio.create_task_group() as crowd:
                    for sent, peer in peers:
                        crowd.start_soon(be_bad, peer, sent)
                took_s = anyio.current_time() - began_s
                everybody_is_gone.set()
            grown_bytes = broker.resident_bytes() - before_bytes
            told.info(
                "%d bad peers gone after %.1f s; %d appends meanwhile, slowest %.0f ms; %.1f MB",
                *(len(peers), took_s, len(slowest_s), max(slowest_s) * 1e3, grown_bytes / 1e6),
            )
            assert len(waits) < WAITS_MAX
        assert broker.terminate() == 0


async def be_bad(peer: RawPeer, sent: bytes) -> None:
    await peer.send(sent)
    await peer.until_closed()


async def wait_until(
    enough: anyio.Event, broker: BrokerProcess, ended: list[dict[str, str]]
) -> None:
    """A watch that goes as slowly as the broker: it ends a call without a request by its clock."""
    while not enough.is_set():
        async with raw(broker) as peer:
            call = RawCall(peer, STATE, [])
            await call.open()
            ended.append(await call.until_ended())


async def append_until(enough: anyio.Event, log: Client, took_s: list[float]) -> None:
    while not enough.is_set():
        began_s = anyio.current_time()
        await log.append(NewVChannel(f"{PCHANNEL}_1v0"), b"meanwhile")
        took_s.append(anyio.current_time() - began_s)
