"""The page of metrics while access is controlled: who may read it, and what others are told."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.app import Broker
from broker.client import connect
from broker.edge.access.new_token import new_token
from tests.broker.app.test_http_endpoint import fetch
from tests.issued_files import Authorities
from tests.local_broker import local_broker

USERS = """
[roles.reads]
grants = ["consume:collection:*", "observe:collection:*"]

[users.root]
roles = ["admin"]
token = "{root}"

[users.prometheus]
roles = ["observer"]
token = "{prometheus}"

[users.ann]
roles = ["reads"]
token = "{ann}"
"""
GUARD_S = 60.0
TOKENS = {name: new_token(name, made_ms=1)[0] for name in ("root", "prometheus", "ann")}


@asynccontextmanager
async def controlled(folder: Path, **others: Any) -> AsyncIterator[Broker]:
    users = folder / "users.toml"
    users.touch(0o600)
    users.write_text(USERS.format(**TOKENS))
    given = {"auth": "on", "auth_bootstrap": users, "http_port": 0, **others}
    async with local_broker(folder / "data", pchannels=1, **given) as broker:
        yield broker


async def metrics(broker: Broker, *lines: str) -> tuple[int, dict[str, str], str]:
    return await fetch(broker.http, "/metrics", *lines)


@pytest.mark.parametrize("user", ["root", "prometheus"])
@pytest.mark.parametrize("header", ["Authorization: Bearer ", "authorization: bearer "])
async def test_who_observes_the_cluster_reads_them(tmp_path: Path, user: str, header: str) -> None:
    async with controlled(tmp_path) as broker:
        status, _, body = await metrics(broker, header + TOKENS[user])
    assert status == 200
    assert "tidemark_connections" in body


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        ([], 401, "pass a token"),
        (["Authorization: Basic cm9vdDp4"], 401, "the token is not known"),
        (["Authorization: Bearer tm_x_y"], 401, "the token is not known"),
        (["Authorization: Bearer " + "x" * 9000], 401, "the token is not known"),
        (["tidemark-process: SECRET"], 401, "pass a token"),
        ([f"Authorization: Bearer {TOKENS['ann']}"], 403, "'ann' may not observe this cluster"),
    ],
    ids=["nothing", "basic", "unknown", "long", "secret", "without a right"],
)
async def test_others_are_told_what_is_missing_and_no_name(
    tmp_path: Path, lines: list[str], status: int, words: str
) -> None:
    async with controlled(tmp_path) as broker:
        secret = (tmp_path / "data" / "cluster.secret").read_text().strip()
        found, headers, body = await metrics(
            broker, *[it.replace("SECRET", secret) for it in lines]
        )
        assert found == status
        assert ("www-authenticate" in headers) == (status == 401)
        assert words in body
        assert "tidemark_connections" not in body
        for path in ("/healthz", "/readyz"):
            assert (await fetch(broker.http, path))[0] == 200


async def test_a_certificate_is_a_proof_too_and_probes_need_none(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "tls")
    files = ours.server()
    given = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.client_ca}
    async with controlled(tmp_path, **given) as broker:

        async def answered(path: str, *lines: str, name: str = "") -> tuple[int, str]:
            context = ssl.create_default_context(cafile=ours.ca)
            if name:
                context.load_cert_chain(*ours.issue(name))
            status, _, body = await fetch(broker.http, path, *lines, tls=context)
            return status, body

        status, body = await answered("/metrics", name="prometheus")
        assert status == 200
        assert "tidemark_connections" in body
        assert (await answered("/metrics", name="ann"))[0] == 403
        assert (await answered("/metrics", name="nobody"))[0] == 401
        assert (await answered("/metrics"))[0] == 401
        # As in calls, a token that is shown decides.
        line = f"Authorization: Bearer {TOKENS['ann']}"
        assert (await answered("/metrics", line, name="prometheus"))[0] == 403
        for path in ("/healthz", "/readyz"):
            assert (await answered(path))[0] == 200
            assert (await answered(path, name="nobody"))[0] == 200


async def test_a_certificate_of_strangers_is_refused_in_the_handshake(tmp_path: Path) -> None:
    ours, theirs = Authorities(tmp_path / "tls"), Authorities(tmp_path / "theirs")
    files = ours.server()
    given = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.client_ca}
    async with controlled(tmp_path, **given) as broker:
        context = ssl.create_default_context(cafile=ours.ca)
        context.load_cert_chain(*theirs.issue("prometheus"))
        port = int(broker.http.rpartition(":")[2])
        with anyio.fail_after(GUARD_S), contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
            assert await reader.read() == b""


async def test_a_revoked_token_reads_no_more_and_the_audit_has_who_tried(tmp_path: Path) -> None:
    async with controlled(tmp_path) as broker:
        async with connect(broker.address, token=TOKENS["root"]) as root:
            made = await root.auth.add_token("prometheus")
            line = f"Authorization: Bearer {made.text}"
            assert (await metrics(broker, line))[0] == 200
            await root.auth.revoke_token(made.info.id)
            assert (await metrics(broker, line))[0] == 401
        assert (await metrics(broker, f"Authorization: Bearer {TOKENS['ann']}"))[0] == 403
    folder = anyio.Path(tmp_path / "data" / "audit")
    records = []
    async for file in folder.glob("*"):
        records += [json.loads(it) for it in (await file.read_text()).splitlines()]
    refused = [it for it in records if it.get("method") == "/metrics"]
    assert {(it["decision"], it["outcome"], it.get("user", "")) for it in refused} == {
        ("refused", "NOT_AUTHENTICATED", ""),
        ("refused", "PERMISSION_DENIED", "ann"),
    }
