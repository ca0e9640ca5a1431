"""Tokens: their form, and what is kept of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.security.tokens import (
    TOKEN_LENGTH_MAX,
    StoredToken,
    TokenText,
    digest_of,
    hash_text,
    read_hash,
    read_token,
)

SECRET = "s" * 43
TOKEN = StoredToken("7a", "ann", b"salt", digest_of(b"salt", SECRET), made_ms=1, expires_ms=1000)


def test_the_parts_of_a_token_come_back_from_its_text() -> None:
    given = TokenText("0af3", "x_-" * 15)
    assert read_token(given.text) == given


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tm_",
        "tm_a",
        f"tm__{SECRET}",
        f"tm_A_{SECRET}",
        f"tx_a_{SECRET}",
        "tm_a_" + SECRET[1:],
        "tm_a_" + "s" * TOKEN_LENGTH_MAX,
    ],
)
def test_what_has_not_the_form_of_a_token_is_none(text: str) -> None:
    assert read_token(text) is None


@given(st.text())
def test_any_text_is_read_or_refused_without_an_error(text: str) -> None:
    for each in (text, f"tm_{text}", f"tm_a_{text}"):
        read_token(each)
        TOKEN.fits(each)


def test_only_its_own_secret_fits_and_the_salt_counts() -> None:
    assert TOKEN.fits(SECRET)
    assert not TOKEN.fits(SECRET + "s")
    assert digest_of(b"salt", SECRET) != digest_of(b"tlas", SECRET)


def test_a_token_expires_at_its_time_and_one_without_a_time_never_does() -> None:
    assert [TOKEN.expired(it) for it in (999, 1000, 1001)] == [False, True, True]
    assert not StoredToken("7a", "ann", b"", b"", made_ms=1).expired(1 << 62)


def test_no_text_of_a_token_shows_its_secret() -> None:
    assert SECRET not in repr(TokenText("a", SECRET))
    assert SECRET not in repr(TOKEN)


@given(st.from_regex("[a-z0-9]{1,64}", fullmatch=True), st.binary(min_size=16, max_size=64))
def test_a_token_comes_back_from_the_line_of_its_hash(id: str, salt: bytes) -> None:
    token = StoredToken(id, "ann", salt, digest_of(salt, SECRET), 5, note="from a file")
    line = hash_text(token)
    assert SECRET not in line
    assert read_hash(line, "ann", 5, "from a file") == token


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sha256:a",
        f"md5:a:{'00' * 16}:{'00' * 32}",
        f"sha256:A:{'00' * 16}:{'00' * 32}",
        f"sha256:a:{'00' * 15}:{'00' * 32}",
        f"sha256:a:{'00' * 16}0:{'00' * 32}",
        f"sha256:a:{'00' * 65}:{'00' * 32}",
        f"sha256:a:{'00' * 16}:{'00' * 31}",
        f"sha256:a:{'00' * 16}:{'00' * 32}\n",
        f"tm_a_{SECRET}",
    ],
)
def test_a_line_that_is_no_hash_is_none(line: str) -> None:
    assert read_hash(line, "ann", 5, "") is None
