"""Servers, or proxies in front of them, that end a handshake: the caller may try again."""

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from broker.client.errors import ConnectionLost, NotTrusted
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.transport import Listener, ListenerLimits
from broker.transport.tls import ClientTls, ServerTls, Tls
from schemas.generated.tidemark import v1
from tests.broker.transport.echo import CALL, HOST, Echo, echo
from tests.broker.transport.test_tls import echoed
from tests.issued_files import Authorities

ALERT, WARNING, FATAL = 21, 1, 2
INTERNAL_ERROR, CLOSE_NOTIFY, UNKNOWN_AUTHORITY = 80, 0, 48
End = Callable[[socket.socket], None]


def at_once(peer: socket.socket) -> None:
    peer.recv(64 * 1024)  # what is unread would make a reset of the end


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def alerting(level: int, description: int) -> End:
    def end(peer: socket.socket) -> None:
        peer.recv(64 * 1024)
        peer.sendall(bytes([ALERT, 3, 3, 0, 2, level, description]))

    return end


@asynccontextmanager
async def ending(end: End) -> AsyncIterator[int]:
    """A port whose first connection is ended like this."""
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                end(peer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            yield listening.getsockname()[1]


@pytest.mark.parametrize(
    "end",
    [at_once, reset, alerting(FATAL, INTERNAL_ERROR), alerting(WARNING, CLOSE_NOTIFY)],
    ids=["closed", "reset", "internal error", "close notify"],
)
async def test_a_server_that_goes_away_inside_the_handshake_is_lost(
    end: End, tmp_path: Path
) -> None:
    ours = Authorities(tmp_path)
    async with ending(end) as port:
        with pytest.raises(ConnectionLost, match=r"during the handshake of TLS|reset by peer"):
            await echoed(port, ours.client())


async def test_a_server_that_does_not_trust_the_client_is_not(tmp_path: Path) -> None:
    async with ending(alerting(FATAL, UNKNOWN_AUTHORITY)) as port:
        with pytest.raises(NotTrusted, match="TLSV1_ALERT_UNKNOWN_CA"):
            await echoed(port, Authorities(tmp_path).client())


async def called(port: int, tls: Tls) -> str:
    """Why a call between processes of a cluster failed."""
    calls = Calls(HOST, port, {}, ClientTls(tls))
    with pytest.raises(Unreachable) as failed:
        await calls.call(CALL, v1.HealthRequest(), v1.HealthResponse, deadline_s=10.0)
    calls.close()
    assert not failed.value.absent
    return str(failed.value)


async def test_a_process_of_the_cluster_is_told_why_it_cannot_call_another(tmp_path: Path) -> None:
    ours, theirs = Authorities(tmp_path / "ours"), Authorities(tmp_path / "theirs", "other")
    async with ending(at_once) as port:
        assert "went away during the handshake" in await called(port, ours.client())
    listener = Listener((Echo(echo, 5.0),), ListenerLimits())
    await listener.listen(HOST, 0, tls=ServerTls(ours.server()))
    foreign = Tls(ours.ca, theirs.client().cert, theirs.client().key)
    assert "does not accept this client's certificate" in await called(listener.port, foreign)
    await listener.hang_up()
