"""Many, silent and failing peers inside of handshakes, on loopback."""

import asyncio
import errno
import socket
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.client.errors import TidemarkError
from broker.transport import Listener, ListenerLimits
from broker.transport.tls import ServerTls, Tls
from broker.transport.tls_server import HandshakeLimits, TlsServer
from tests.broker.transport.echo import HOST, Echo, echo
from tests.broker.transport.test_tls import echoed
from tests.issued_files import Authorities

GUARD_S = 60.0


async def listener_of(tls: ServerTls, limits: ListenerLimits) -> Listener:
    listener = Listener((Echo(echo, 5.0),), limits)
    await listener.listen(HOST, 0, tls=tls)
    return listener


async def test_silent_peers_keep_nobody_out_and_are_bounded(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    limits = ListenerLimits(handshakes_max=8, idle_peer_s=GUARD_S)
    listener = await listener_of(ServerTls(ours.server()), limits)
    silent = [await asyncio.open_connection(HOST, listener.port) for _ in range(20)]
    async with asyncio.timeout(GUARD_S):
        assert await echoed(listener.port, ours.client()) == b"abc"
        # Well before the time that one of them has: those before the last ones made room.
        for reader, _ in silent[: -limits.handshakes_max]:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        await listener.hang_up()
    for _, writer in silent:
        writer.close()


async def test_a_stop_ends_handshakes_in_progress(tmp_path: Path) -> None:
    limits = ListenerLimits(idle_peer_s=GUARD_S)
    listener = await listener_of(ServerTls(Authorities(tmp_path).server()), limits)
    silent = [await asyncio.open_connection(HOST, listener.port) for _ in range(10)]
    async with asyncio.timeout(GUARD_S / 2):
        await listener.hang_up()
        for reader, writer in silent:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, listener_port(silent))


def listener_port(connections: list[Any]) -> int:
    return int(connections[0][1].get_extra_info("peername")[1])


@pytest.mark.parametrize("secured", [True, False])
async def test_a_connection_that_failed_or_was_refused_leaves_nothing(
    tmp_path: Path, *, secured: bool
) -> None:
    ours = Authorities(tmp_path)
    listener = Listener((Echo(echo, 5.0),), ListenerLimits(connections_max=0))
    await listener.listen(HOST, 0, tls=ServerTls(ours.server()) if secured else None)
    for tls in [Tls(ca=ours.ca), ours.client()] * 20:
        with pytest.raises(TidemarkError):
            await echoed(listener.port, tls if secured else None)
    assert listener.connections == 0
    assert listener.open_connections.refused >= 20
    assert len(listener._handlers) == 0  # grpclib's, of which nobody would remove one
    await listener.hang_up()


async def test_who_is_not_let_in_is_told_with_the_address_and_why(tmp_path: Path) -> None:
    ours, theirs = Authorities(tmp_path / "ours"), Authorities(tmp_path / "theirs", "other")
    stranger = theirs.client("stranger")
    told: list[tuple[str, str]] = []
    listener = Listener(
        (Echo(echo, 5.0),), ListenerLimits(), lambda address, why: told.append((address, why))
    )
    await listener.listen(HOST, 0, tls=ServerTls(ours.server()))
    for tls in (Tls(ca=ours.ca), Tls(ours.ca, stranger.cert, stranger.key)):
        with pytest.raises(TidemarkError):
            await echoed(listener.port, tls)
    assert await echoed(listener.port, ours.client()) == b"abc"
    listener.open_connections.connections_max = 0
    with pytest.raises(TidemarkError):
        await echoed(listener.port, ours.client())
    await listener.hang_up()
    assert {why for _, why in told} == {"BAD_HANDSHAKE", "BAD_CERTIFICATE", "CONNECTIONS_MAX"}
    assert all(address.startswith(f"{HOST}:") for address, _ in told)
    assert all(int(address.rpartition(":")[2]) > 0 for address, _ in told)


def resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[Any, bool]:
    """Connect with this session; returns the next one, and whether the server said anything."""
    with closing(socket.create_connection((HOST, port), GUARD_S)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=HOST, session=session) as secured:
                answered = bool(secured.recv(1))
                return secured.session, answered
        except (ssl.SSLError, ConnectionResetError):
            return None, False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_not_resumed_once_its_authority_was_replaced(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ours, theirs = Authorities(tmp_path / "ours"), Authorities(tmp_path / "theirs", "other")
    ours.client()
    context = ssl.create_default_context(cafile=str(ours.ca))
    context.load_cert_chain(ours.folder / "client.pem", ours.folder / "client.key")
    context.maximum_version = version
    # Apart from the file that the client trusts.
    accepted = tmp_path / "accepted.pem"
    accepted.write_bytes(ours.ca.read_bytes())
    files = ours.server()
    files = type(files)(files.cert, files.key, accepted)
    listener = await listener_of(ServerTls(files), ListenerLimits())
    session, answered = await asyncio.to_thread(resumed, listener.port, context, None)
    assert answered
    assert session is not None
    theirs.ca.rename(accepted)
    _, answered = await asyncio.to_thread(resumed, listener.port, context, session)
    assert not answered
    await listener.hang_up()


class OutOfFiles(socket.socket):
    """Cannot accept the first connection, as when the process has no file left."""

    failures = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """As the system's from the second call on."""
        if not self.failures:
            self.failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_connections_are_accepted_again_when_there_are_files_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Authorities(tmp_path)
    listening = OutOfFiles(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind((HOST, 0))
    listening.listen()
    streams: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    def made() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(
            asyncio.StreamReader(), lambda _, writer: streams.put_nowait(writer)
        )

    tls = ServerTls(ours.server(asks=False), "http/1.1")
    server = TlsServer(listening, made, tls, HandshakeLimits(GUARD_S, 1.0))
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(ours.ca))
    async with asyncio.timeout(GUARD_S):
        _, ours_end = await asyncio.open_connection(HOST, port, ssl=trusting)
        their_end = await streams.get()
        for writer in (ours_end, their_end):
            writer.close()
        server.close()
        server.close()
        await server.wait_closed()
    assert "cannot accept connections for 1 s: [Errno 24] Too many open files" in caplog.text
    assert server.sockets == ()
