"""The identity provider of the settings, and what is wrong with half-given ones."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from broker.app.process_errors import CannotStart
from broker.app.security.jwt_access import jwt_access
from broker.process_settings import GivenSettings, Settings
from tests.jwt_provider import AUDIENCE, ISSUER, NOW_S, claims, jwk, key_set, token
from tests.key_page import Page, published


def given(**others: Any) -> Settings:
    whole = {"auth": "on", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    return GivenSettings(**{**whole, **others})


def now_s() -> float:
    return 0.0


async def test_without_a_key_set_there_are_no_jwts() -> None:
    assert await jwt_access(GivenSettings(), now_s) is None


async def test_the_settings_say_what_a_token_must_hold(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk("k1")))
    made = await jwt_access(
        given(jwt_jwks=str(file), jwt_user_claim="email", jwt_roles_claim="realm.roles"), now_s
    )
    assert made is not None
    found = made.tokens(
        token(claims(email="ann@example.com", realm={"roles": ["writer"]})), NOW_S * 1000
    )
    assert (found.name, found.roles) == ("jwt:ann@example.com", ("writer",))
    assert made.child().name == "jwt_keys"


async def test_the_settings_say_how_often_a_url_is_read() -> None:
    page = Page(key_set(jwk("k1")))
    async with published(page):
        made = await jwt_access(given(jwt_jwks=page.url, jwt_refresh_s=3), now_s)
    assert made is not None
    assert (made.source.period_s, made.ring.refresh.period_s) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"<html>", "no JSON"),
        (key_set(), "it holds no keys"),
        (key_set(jwk("k", use="enc")), "key 'k' is ignored"),
    ],
    # Keys are random, and names of tests must not be.
    ids=["missing", "no JSON", "empty", "unfit"],
)
async def test_a_file_without_keys_keeps_a_broker_from_starting(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotStart, match=words):
        await jwt_access(given(jwt_jwks=str(file)), now_s)


async def test_a_provider_that_is_away_keeps_no_broker_from_starting() -> None:
    async with published(Page()) as page:
        url = page.url
    made = await jwt_access(given(jwt_jwks=url), now_s)
    assert made is not None
    (told,) = made.ring.warnings()
    assert "JWTs are refused" in told


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"jwt_jwks": "k"}, "jwt_jwks is set without jwt_issuer and jwt_audience"),
        ({"jwt_issuer": "i", "jwt_audience": "a"}, "jwt_issuer is set without jwt_jwks"),
        ({"jwt_jwks": "k", "jwt_issuer": "i"}, "jwt_jwks is set without jwt_audience"),
        ({"jwt_jwks": "k", "jwt_issuer": "i", "jwt_audience": "a"}, "while auth is off"),
        ({"jwt_jwks": "http://id.example/"}, "use https"),
        ({"jwt_algorithms": "HS256"}, "choose among"),
        ({"jwt_user_claim": ""}, "at least 1"),
    ],
)
def test_settings_that_are_half_given_are_refused(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        GivenSettings(**wrong)  # type: ignore[arg-type]
