"""Brokers to be attacked: plain, with TLS, and one that asks for tokens."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pyarrow as pa

from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from broker.edge.access.new_token import new_token
from broker.transport.tls import Tls
from tests.broker_process import BrokerProcess, FreshBrokerProcess, free_port
from tests.issued_files import Authorities
from tests.jwt_provider import AUDIENCE, ISSUER, jwk, key_set, signed_by_hand
from tests.key_page import Page, published
from tests.limits.hostile.attack import Setup, Target
from tests.limits.hostile.hostile_tokens import HEADER, hostile_claims
from tests.limits.hostile.packed_bombs import ROWS

IDLE_PEER_S = 2.0
"""For tests of peers that are cut; for those of what attackers get it is `PATIENT_S`."""
PATIENT_S = 15.0
"""Attackers run in the test's own process. A busy machine holds it up for longer than two seconds,
and they would be cut, not refused."""
(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")


@dataclass(slots=True)
class Attacked:
    """A broker, how attackers reach it, and a client that behaves."""

    broker: BrokerProcess
    target: Target
    neighbour: Client
    data: Path
    tls: Tls | None = None
    keys: Page | None = None
    """Where the identity provider publishes; counts who asks."""


@asynccontextmanager
async def attacked(folder: Path, setup: Setup, **more: str) -> AsyncIterator[Attacked]:
    """A broker that runs while the block does, and must then end in order; `more`: settings."""
    # Of sockets that the broker has closed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    http_port, token = free_port(), ""
    idle_s = IDLE_PEER_S if setup is Setup.TLS else PATIENT_S
    settings = {"pchannels": "1", "idle_peer_s": str(idle_s), "http_port": str(http_port)}
    settings |= more
    target = Target(0, http_port, PCHANNEL)
    tls: Tls | None = None
    keys: Page | None = None
    async with AsyncExitStack() as stack:
        if setup is Setup.TLS:
            ours = Authorities(folder)
            files, tls = ours.server(), ours.client()
            target = replace(target, ca=str(ours.ca))
            settings |= {
                "tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(ours.ca)
            }  # fmt: skip
        elif setup is Setup.AUTH:
            keys = await stack.enter_async_context(published(Page(_published_keys())))
            token, users = _administrator(folder)
            signed = tuple([signed_by_hand(HEADER, it) for it in hostile_claims()])
            target = replace(target, signed=signed)
            settings |= {
                "auth": "on",
                "auth_bootstrap": str(users),
                "jwt_jwks": keys.url,
                "jwt_issuer": ISSUER,
                "jwt_audience": AUDIENCE,
            }
        # In a thread, because it waits, and the broker reads the keys as it starts.
        start = partial(FreshBrokerProcess, folder / "data", **settings)
        broker = stack.enter_context(await anyio.to_thread.run_sync(start))
        async with connect(broker.address, tls=tls, token=token) as log:
            await log.append(VCHANNEL, b"before")
            rows = await log.collections.create("rows", shards=1, schema=ROWS)
            # Loads Arrow's library.
            await log.append_arrow("rows", pa.table({"text": ["a"], "number": [1]}, ROWS))
            term = (await log.admin.channels())[0].term
            target = replace(target, port=broker.port, term=term, rows_vchannel=rows.vchannels[0])
            yield Attacked(broker, target, log, folder / "data", tls, keys)
        assert broker.terminate() == 0


def _published_keys() -> bytes:
    return key_set(jwk("e", "ES256"), jwk("r", "RS256"), jwk("o", "EdDSA"))


def _administrator(folder: Path) -> tuple[str, Path]:
    """A token of one, and the file by which the broker knows it."""
    text, _ = new_token("root", made_ms=1)
    file = folder / "users.toml"
    file.touch(0o600)
    file.write_text(f'[users.root]\nroles = ["admin"]\ntoken = "{text}"\n')
    return text, file
