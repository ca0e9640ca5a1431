"""TLS that never gets to HTTP/2: silence, halves of handshakes, and handshakes without end."""

import asyncio
import ssl
from contextlib import suppress

import anyio

from tests.limits.hostile.attack import Got, Target

CROWD = 1000
"""Sockets of one attacker at a time."""
AT_ONCE = 32
PAUSE_S = 0.05
# A record of a handshake that announces a ClientHello of 508 bytes, and its first ones.
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)


async def half_open_handshakes(target: Target, got: Got) -> None:
    """A thousand connections that say nothing; each comes again when it is closed."""
    await _crowd(target, got, b"")


async def halves_of_hellos(target: Target, got: Got) -> None:
    """A thousand that send half a ClientHello."""
    await _crowd(target, got, HALF_A_HELLO)


async def handshakes(target: Target, got: Got) -> None:
    """Handshakes without a certificate, one after the other."""
    context = ssl.create_default_context(cafile=target.ca)
    context.set_alpn_protocols(["h2"])

    async def again() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", target.port, ssl=context
                )
            except OSError:
                got["refused"] += 1
                await anyio.sleep(PAUSE_S)
                continue
            # In TLS 1.3 a client learns that its certificate is missing when it reads.
            with suppress(OSError):
                await reader.read(1)
            got["closed"] += 1
            writer.transport.abort()

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(again)


async def _crowd(target: Target, got: Got, sent: bytes) -> None:
    async def again() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            except OSError:
                got["refused"] += 1
                await anyio.sleep(PAUSE_S)
                continue
            try:
                with suppress(OSError):
                    writer.write(sent)
                    await reader.read(1)
                got["closed"] += 1
            finally:
                writer.transport.abort()

    async with anyio.create_task_group() as tasks:
        for _ in range(CROWD):
            tasks.start_soon(again)
