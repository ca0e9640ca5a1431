"""Certificates that are replaced while clients append and connect: no request fails."""

import os
import signal
import socket
import ssl
from pathlib import Path

import anyio
from cryptography import x509

from broker.client import Tls, connect
from broker.client.cluster.targets import NewVChannel
from tests.broker_process import BrokerProcess
from tests.issued_files import HOSTS, Authorities

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_0_1v0")
REPLACED = 10
GUARD_S = 120.0


def _replaced(authorities: Authorities, cert: Path, key: Path, number: int) -> int:
    """Put a new pair into these files, one after the other; its serial number."""
    new_cert, new_key = authorities.issue(f"server-{number}", *HOSTS)
    serial = x509.load_pem_x509_certificate(new_cert.read_bytes()).serial_number
    new_cert.rename(cert)
    new_key.rename(key)
    return serial


def _shown(port: int, tls: Tls) -> int:
    """The serial number of the certificate that the broker shows now."""
    assert tls.ca is not None
    assert tls.cert is not None
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    with (
        socket.create_connection((HOSTS[0], port), timeout=GUARD_S) as plain,
        context.wrap_socket(plain, server_hostname=HOSTS[0]) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


async def test_certificates_are_replaced_under_load_and_no_request_fails(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path / "certificates")
    files, tls = authorities.server(), authorities.client()
    assert files.client_ca is not None
    settings = {
        "pchannels": "1",
        "tls_cert": str(files.cert),
        "tls_key": str(files.key),
        "tls_ca": str(files.client_ca),
    }
    appended = connected = 0
    with BrokerProcess(tmp_path / "data", **settings) as broker, anyio.fail_after(GUARD_S):

        async def append(done: anyio.Event) -> None:
            nonlocal appended
            async with connect(broker.address, tls=tls) as log:
                while not done.is_set():
                    await log.append(VCHANNEL, b"x")
                    appended += 1

        async def connect_again(done: anyio.Event) -> None:
            nonlocal connected
            while not done.is_set():
                async with connect(broker.address, tls=tls) as log:
                    await log.append(VCHANNEL, b"y")
                    connected += 1

        async with anyio.create_task_group() as tasks:
            done = anyio.Event()
            tasks.start_soon(append, done)
            tasks.start_soon(connect_again, done)
            for number in range(REPLACED):
                last = _replaced(authorities, files.cert, files.key, number)
                os.kill(broker.pid, signal.SIGHUP)
                async with connect(broker.address, tls=tls) as log:
                    await log.append(VCHANNEL, b"z")
            done.set()
        assert await anyio.to_thread.run_sync(_shown, broker.port, tls) == last
        async with connect(broker.address, tls=tls) as log:
            stored = [len(it) async for it in log.read_batches(VCHANNEL, until="now")]
        assert sum(stored) == appended + connected + REPLACED
        assert min(appended, connected) > 0
        assert broker.terminate() == 0
