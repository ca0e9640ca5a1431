"""Every attack against a real broker: others go on, attackers get refusals, memory is bounded."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.client import connect
from tests.limits.hostile.attack import Attack, Got, Setup
from tests.limits.hostile.attacked_broker import IDLE_PEER_S, VCHANNEL, Attacked, attacked
from tests.limits.hostile.every_attack import ATTACKS
from tests.limits.hostile.hostile_handshakes import CROWD
from tests.limits.hostile.hostile_peers import CLOSED, FLOODS
from tests.wire.raw_peer import RawPeer, raw

GROWTH_BYTES_MAX = 192 << 20
"""By all floods together; each of them alone could make it more without its limit."""
CALLS_GROWTH_BYTES_MAX = 320 << 20
"""By all calls together: of these 16 hold requests of 4 MiB at a time, and a copy of each."""
TAIL_BYTES_MAX = 8 << 20
"""Of what was accepted, in memory for readers."""
APPENDS = 5
ANSWERS = 20
"""Which an attacker gets before the next attack begins."""
GUARD_S = 120.0
ON_CONNECTIONS = {it.__name__ for it in (*FLOODS, *CLOSED)}


@asynccontextmanager
async def over_tls(broker: Attacked) -> AsyncIterator[RawPeer]:
    """A connection to which nothing has been sent; of a broker without TLS, too."""
    if broker.tls is None:
        async with raw(broker.target) as peer:
            yield peer
        return
    context = ssl.create_default_context(cafile=broker.tls.ca)
    assert broker.tls.cert is not None
    context.load_cert_chain(broker.tls.cert, broker.tls.key)
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.target.port, ssl=context)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("setup", [Setup.PLAIN, Setup.TLS])
async def test_while_every_flood_goes_on_appends_are_acknowledged_and_memory_is_bounded(
    tmp_path: Path, setup: Setup
) -> None:
    async with attacked(tmp_path, setup) as broker:
        before_bytes = broker.broker.resident_bytes()
        for attack in FLOODS:
            async with over_tls(broker) as peer, anyio.create_task_group() as tasks:
                tasks.start_soon(attack, peer)
                for _ in range(APPENDS):
                    await broker.neighbour.append(VCHANNEL, b"meanwhile")
                # It may still wait for the server to read, which is what it is meant to do.
                tasks.cancel_scope.cancel()
        grown_bytes = broker.broker.resident_bytes() - before_bytes
        assert grown_bytes < GROWTH_BYTES_MAX, f"{grown_bytes / 1e6:.0f} MB"


async def test_a_peer_that_breaks_the_protocol_or_stops_inside_of_it_is_closed(
    tmp_path: Path,
) -> None:
    async with attacked(tmp_path, Setup.PLAIN, idle_peer_s=str(IDLE_PEER_S)) as broker:
        for attack in CLOSED:
            async with raw(broker.target) as peer:
                await attack(peer)
                await peer.until_closed()
                await broker.neighbour.append(VCHANNEL, b"after")


@pytest.mark.parametrize("setup", Setup)
async def test_attackers_get_refusals_alone_and_memory_is_bounded(
    tmp_path: Path, setup: Setup
) -> None:
    async with attacked(tmp_path, setup, tail_bytes_max=str(TAIL_BYTES_MAX)) as broker:
        before_bytes = broker.broker.resident_bytes()
        for attack in ATTACKS:
            if attack.setup is setup and attack.name not in ON_CONNECTIONS:
                got = await answered(broker, attack)
                assert {*got} <= attack.gets, attack.name
        grown_bytes = broker.broker.resident_bytes() - before_bytes
        assert grown_bytes < CALLS_GROWTH_BYTES_MAX, f"{grown_bytes / 1e6:.0f} MB"
        assert not strangers_in(broker.data)
        if broker.keys is not None:
            # At the start, and for the first key that was not known.
            assert broker.keys.asked <= 2 + GUARD_S // 60


async def answered(broker: Attacked, attack: Attack) -> Got:
    """What the attacker gets until it has `ANSWERS`, and the neighbour its acknowledgements."""
    got = Got()
    with anyio.fail_after(GUARD_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attack.run, broker.target, got)
            while got.total() < ANSWERS:
                await broker.neighbour.append(VCHANNEL, b"meanwhile")
            tasks.cancel_scope.cancel()
    return got


def strangers_in(folder: Path) -> list[str]:
    """Files whose names did not come from the broker."""
    plain = set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
    return [str(it) for it in folder.rglob("*") if not plain.issuperset(it.name)]


async def test_a_thousand_half_open_handshakes_keep_nobody_out(tmp_path: Path) -> None:
    async with attacked(tmp_path, Setup.TLS) as broker:
        before_bytes = broker.broker.resident_bytes()
        silent = [
            await asyncio.open_connection("127.0.0.1", broker.target.port) for _ in range(CROWD)
        ]
        async with connect(broker.broker.address, tls=broker.tls) as late:
            await late.append(VCHANNEL, b"late")
        await broker.neighbour.append(VCHANNEL, b"meanwhile")
        assert broker.broker.resident_bytes() - before_bytes < GROWTH_BYTES_MAX
        for _, writer in silent:
            writer.transport.abort()
