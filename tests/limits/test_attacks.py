"""Hostile peers against a real broker, plain and with TLS: others go on, and memory is bounded."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from broker.transport.tls import Tls
from tests.broker_process import BrokerProcess, FreshBrokerProcess
from tests.issued_files import Authorities
from tests.limits.hostile_peers import CLOSED, FLOODS, Attack
from tests.wire.raw_peer import RawPeer

GROWTH_BYTES_MAX = 192 << 20
"""By all attacks together; each of them alone could make it more without its limit."""
APPENDS = 5
HALF_OPEN = 1000
IDLE_PEER_S = 2.0
(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")


class Attacked:
    """A broker, and how to connect to it."""

    def __init__(self, broker: BrokerProcess, tls: Tls | None) -> None:
        self.broker, self.tls = broker, tls

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[RawPeer]:
        context = None
        if self.tls is not None:
            context = ssl.create_default_context(cafile=self.tls.ca)
            assert self.tls.cert is not None
            context.load_cert_chain(self.tls.cert, self.tls.key)
            context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port, ssl=context)
        try:
            yield RawPeer(reader, writer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def attacked(folder: Path, *, secured: bool) -> AsyncIterator[tuple[Attacked, Client]]:
    settings = {"pchannels": "1", "idle_peer_s": str(IDLE_PEER_S)}
    tls: Tls | None = None
    if secured:
        ours = Authorities(folder)
        files, tls = ours.server(), ours.client()
        settings |= {
            "tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(ours.ca)
        }  # fmt: skip
    with FreshBrokerProcess(folder / "data", **settings) as broker:
        async with connect(broker.address, tls=tls) as log:
            await log.append(VCHANNEL, b"before")
            yield Attacked(broker, tls), log
        assert broker.terminate() == 0


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_while_every_attack_goes_on_appends_are_acknowledged_and_memory_is_bounded(
    tmp_path: Path, *, secured: bool
) -> None:
    async with attacked(tmp_path, secured=secured) as (target, log), AsyncExitStack() as stack:
        before_bytes = target.broker.resident_bytes()
        for attack in FLOODS:
            peer = await stack.enter_async_context(target.raw())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attack, peer)
                for _ in range(APPENDS):
                    await log.append(VCHANNEL, b"meanwhile")
                # It may still wait for the server to read, which is what it is meant to do.
                tasks.cancel_scope.cancel()
        grown_bytes = target.broker.resident_bytes() - before_bytes
        assert grown_bytes < GROWTH_BYTES_MAX, f"{grown_bytes / 1e6:.0f} MB"


@pytest.mark.parametrize("attack", CLOSED, ids=lambda it: it.__name__)
async def test_a_peer_that_breaks_the_protocol_or_stops_inside_of_it_is_closed(
    tmp_path: Path, attack: Attack
) -> None:
    async with attacked(tmp_path, secured=False) as (target, log), target.raw() as peer:
        await attack(peer)
        await peer.until_closed()
        await log.append(VCHANNEL, b"after")


async def test_a_thousand_half_open_handshakes_keep_nobody_out(tmp_path: Path) -> None:
    async with attacked(tmp_path, secured=True) as (target, log):
        before_bytes = target.broker.resident_bytes()
        silent = [
            await asyncio.open_connection("127.0.0.1", target.broker.port) for _ in range(HALF_OPEN)
        ]
        async with connect(target.broker.address, tls=target.tls) as late:
            await late.append(VCHANNEL, b"late")
        await log.append(VCHANNEL, b"meanwhile")
        assert target.broker.resident_bytes() - before_bytes < GROWTH_BYTES_MAX
        for _, writer in silent:
            writer.transport.abort()
