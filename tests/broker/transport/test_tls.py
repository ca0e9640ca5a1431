"""Handshakes between a real listener and the client's connection, on loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.errors import ConnectionLost, NotTrusted, TidemarkError
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from broker.transport import Listener, ListenerLimits
from broker.transport.tls import BadTls, ClientTls, ServerFiles, ServerTls, Tls
from tests.broker.transport.echo import CALL, HOST, Echo, echo
from tests.issued_files import Authorities


@asynccontextmanager
async def listening(
    tls: ServerTls | None, limits: ListenerLimits | None = None
) -> AsyncIterator[int]:
    listener = Listener((Echo(echo, 5.0),), limits or ListenerLimits())
    await listener.listen(HOST, 0, tls=tls)
    try:
        yield listener.port
    finally:
        await listener.hang_up()


async def echoed(port: int, tls: Tls | ClientTls | None, host: str = HOST) -> bytes:
    """What one call over a new connection brings back."""
    chosen = ClientTls(tls) if isinstance(tls, Tls) else tls
    connection = Connection(f"{host}:{port}", cluster="c", lifetime=ClientLifetime(), tls=chosen)
    try:
        async with connection.converse(CALL, deadline_s=10.0) as stream:
            await stream.write(b"\0\0\0\0\3abc", 10.0)
            return (await stream.read(10.0))[0]
    finally:
        connection.close()


async def echoed_at_last(port: int, tls: Tls) -> bytes:
    """As `echoed`; a busy machine may need longer than the limit of silent peers allows."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await echoed(port, tls)
            except ConnectionLost:
                await asyncio.sleep(0)


async def refusal(port: int, tls: Tls | None, host: str = HOST) -> TidemarkError:
    with pytest.raises(TidemarkError) as failed:
        await echoed(port, tls, host)
    return failed.value


async def test_a_client_that_trusts_the_server_and_is_trusted_gets_its_answer(
    tmp_path: Path,
) -> None:
    ours = Authorities(tmp_path)
    async with listening(ServerTls(ours.server())) as port:
        assert await echoed(port, ours.client()) == b"abc"
        assert await echoed(port, ours.client(), "localhost") == b"abc"


async def test_a_large_message_passes_both_ways(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    body = bytes(range(256)) * 2048
    async with listening(ServerTls(ours.server())) as port:
        tls = ClientTls(ours.client())
        connection = Connection(f"{HOST}:{port}", cluster="c", lifetime=ClientLifetime(), tls=tls)
        async with connection.converse(CALL, deadline_s=10.0) as stream:
            for _ in range(20):
                await stream.write(b"\0" + len(body).to_bytes(4, "big") + body, 10.0)
                assert await stream.read(10.0) == [body]
        connection.close()


async def test_a_server_that_asks_nobody_serves_clients_without_a_certificate(
    tmp_path: Path,
) -> None:
    ours = Authorities(tmp_path)
    async with listening(ServerTls(ours.server(asks=False))) as port:
        assert await echoed(port, Tls(ca=ours.ca)) == b"abc"


async def test_each_failed_check_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidemark.tls")
    ours, theirs = Authorities(tmp_path / "ours"), Authorities(tmp_path / "theirs", "other")
    ca = ours.ca
    async with listening(ServerTls(ours.server())) as port:
        foreign = await refusal(port, replace(ours.client(), ca=theirs.ca))
        assert "its certificate is not trusted: self-signed certificate in" in str(foreign)
        assert isinstance(foreign, NotTrusted)
        assert "asks clients for a certificate" in str(await refusal(port, Tls(ca=ca)))
        unknown = await refusal(port, replace(theirs.client(), ca=ca))
        assert "does not accept this client's certificate" in str(unknown)
        assert "its certificate is not accepted: unable to get local issuer" in caplog.messages[-1]
        expired = await refusal(port, ours.client("late", days=-1))
        assert "does not accept this client's certificate" in str(expired)
        assert "its certificate is not accepted: certificate has expired" in caplog.messages[-1]
        plain = await refusal(port, None)
        assert "if it speaks TLS, connect with TLS" in str(plain)
        assert isinstance(plain, ConnectionLost)
    async with listening(ServerTls(ours.server(days=-1))) as port:
        assert "certificate has expired" in str(await refusal(port, ours.client()))
    cert, key = ours.issue("elsewhere", "broker.example.org")
    async with listening(ServerTls(ServerFiles(cert, key))) as port:
        assert "not valid for '127.0.0.1'" in str(await refusal(port, Tls(ca=ca)))
    async with listening(None) as port:
        assert "does not speak TLS" in str(await refusal(port, ours.client()))


async def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    old = ssl.create_default_context(cafile=str(ours.ca))
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with listening(ServerTls(ours.server(asks=False))) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(HOST, port, ssl=old)


async def test_replaced_certificates_are_used_by_the_next_handshake(tmp_path: Path) -> None:
    ours, next_ones = Authorities(tmp_path / "ours"), Authorities(tmp_path / "next", "next")
    files = ours.server()
    server, client = ServerTls(files), ClientTls(ours.client())
    async with listening(server) as port:
        assert await echoed(port, client) == b"abc"
        assert files.client_ca is not None
        replaced = next_ones.server()
        for old, new in (
            (files.cert, replaced.cert),
            (files.key, replaced.key),
            (files.client_ca, next_ones.ca),
        ):
            new.rename(old)
        # The client trusts the file that the authority's certificate was replaced in.
        next_ones.client()
        with pytest.raises(ConnectionLost, match="does not accept this client's certificate"):
            await echoed(port, client)  # its own certificate is of the old authority
        (next_ones.folder / "client.pem").rename(ours.folder / "client.pem")
        (next_ones.folder / "client.key").rename(ours.folder / "client.key")
        assert await echoed(port, client) == b"abc"


async def test_unusable_new_files_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Authorities(tmp_path)
    files = ours.server()
    async with listening(ServerTls(files)) as port:
        files.cert.write_bytes(files.cert.read_bytes()[:100])
        assert await echoed(port, ours.client()) == b"abc"
    assert "keeping the earlier certificates: no PEM certificate in" in caplog.text


async def test_peers_that_never_finish_a_handshake_are_cut(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    limits = ListenerLimits(idle_peer_s=0.3)
    async with listening(ServerTls(ours.server()), limits) as port:
        silent = [await asyncio.open_connection(HOST, port) for _ in range(200)]
        assert await echoed_at_last(port, ours.client()) == b"abc"
        async with asyncio.timeout(60):
            for reader, writer in silent:
                try:
                    assert await reader.read() == b""
                except ConnectionResetError:
                    pass
                writer.close()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    ours = Authorities(tmp_path)
    files = ours.server()
    with pytest.raises(BadTls, match=r"cannot read .*nowhere: No such file"):
        ServerTls(replace(files, cert=tmp_path / "nowhere"))
    _, other = ours.issue("other")
    with pytest.raises(BadTls, match=r"other.key is not the private key of the certificate"):
        ServerTls(replace(files, key=other))
    with pytest.raises(BadTls, match=r"no PEM certificates in .*server.key"):
        ServerTls(replace(files, client_ca=files.key))
    with pytest.raises(BadTls, match="cert is given without key"):
        ClientTls(Tls(cert=files.cert))
