"""A whole broker with access under control, and callers with the tokens of an identity provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors import SystemClock
from broker.app import Broker
from broker.client import BatchScanner, Client, connect
from broker.client.errors import NotAuthenticated, PermissionDenied
from tests.jwt_provider import AUDIENCE, ISSUER, claims, jwk, key_set, token
from tests.local_broker import local_broker

USERS = """
[roles.clicks_reader]
grants = ["consume:collection:clicks", "observe:collection:clicks"]

[users.root]
roles = ["admin"]
"""
HOUR_S, GUARD_S = 3600, 60.0


@asynccontextmanager
async def broker_with_provider(folder: Path) -> AsyncIterator[Broker]:
    users, keys = folder / "users.toml", folder / "keys.json"
    users.write_text(USERS)
    keys.write_bytes(key_set(jwk("k1"), jwk("other", use="enc")))
    given = {
        "auth": "on",
        "auth_bootstrap": users,
        "jwt_jwks": str(keys),
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
    }
    async with local_broker(folder / "data", pchannels=1, **given) as broker:
        yield broker


def of(user: str, *roles: str, number: int = 0, key_id: str = "k1", **others: Any) -> str:
    """A token that is valid now."""
    now_s = SystemClock().wall_ms() // 1000
    whole = claims(sub=user, tidemark_roles=list(roles), iat=now_s, exp=now_s + HOUR_S, **others)
    return token(whole, key_id, number=number)


async def test_roles_of_a_jwt_allow_and_deny_and_its_end_ends_a_stream(tmp_path: Path) -> None:
    with anyio.fail_after(GUARD_S):
        async with broker_with_provider(tmp_path) as broker:
            async with connect(broker.address, token=of("ann", "admin")) as log:
                me = await log.auth.who_am_i()
                assert (me.user, me.proof, me.roles) == ("jwt:ann", "other", ("admin",))
                await log.collections.create("clicks", shards=1)
                await log.append("clicks", b"one")

            async with connect(broker.address, token=of("eve", "clicks_reader", "nosuch")) as log:
                with pytest.raises(PermissionDenied, match="jwt:eve"):
                    await log.append("clicks", b"two")
                read: list[bytes] = []
                with pytest.raises(NotAuthenticated):
                    await read_until_the_token_is_over(broker, log, read)
                assert read == [b"one"]


async def read_until_the_token_is_over(broker: Broker, log: Client, read: list[bytes]) -> None:
    async for batch in log.read_batches("clicks", start="all"):
        read += [it.payload for it in batch.messages]
        if read:
            # Two hours pass at once, while the stream is open.
            broker.edge._middleware.access.now_ms = later


async def test_a_withdrawn_key_ends_open_streams_and_lets_those_of_others_go_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.json"
    async with broker_with_provider(tmp_path) as broker:
        file.write_bytes(key_set(jwk("k1"), jwk("k2", number=1)))
        kept, gone = of("ann", "admin"), of("eve", "admin", number=1, key_id="k2")
        with anyio.fail_after(GUARD_S):
            async with (
                connect(broker.address, token=kept) as ann,
                connect(broker.address, token=gone) as eve,
            ):
                await ann.collections.create("clicks", shards=1)
                await ann.append("clicks", b"one")
                read = eve.read_batches("clicks", start="all")
                assert len((await anext(read)).messages) == 1
                file.write_bytes(key_set(jwk("k1")))
                with pytest.raises(NotAuthenticated, match="identity provider"):
                    await read_to_its_end(read)
                await ann.append("clicks", b"two")


async def read_to_its_end(read: BatchScanner) -> None:
    async for _ in read:
        pass


def later() -> int:
    return SystemClock().wall_ms() + 2 * HOUR_S * 1000


async def test_tokens_that_prove_nothing_are_refused_with_the_reason(tmp_path: Path) -> None:
    hostile = {
        "does not publish": token(claims(), "k2"),
        "not signed with the key": of("ann", "admin", number=9),
        "another audience": of("ann", "admin", aud="others"),
        "another issuer": of("ann", "admin", iss="https://evil.example"),
        "has not the form": "no.token",
    }
    with anyio.fail_after(GUARD_S):
        async with broker_with_provider(tmp_path) as broker:
            for words, text in hostile.items():
                with pytest.raises(NotAuthenticated, match=words) as error:
                    async with connect(broker.address, token=text):
                        pass
                assert text not in str(error.value)


async def test_health_tells_of_a_key_that_is_not_used(tmp_path: Path) -> None:
    with anyio.fail_after(GUARD_S):
        async with (
            broker_with_provider(tmp_path) as broker,
            connect(broker.address, token=of("ann", "admin")) as log,
        ):
            (actor,) = [it for it in broker.system.statistics() if it.path == "/root/jwt_keys"]
            assert actor.kind == "actor"
            health = await log.admin.health()
            assert [it for it in health.warnings if "key 'other' is ignored" in it]
