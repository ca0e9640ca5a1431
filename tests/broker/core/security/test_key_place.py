"""Files and URLs in the setting jwt_jwks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.security.key_place import URL_LENGTH_MAX, KeyUrl, checked_key_place, key_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://id.example/keys", KeyUrl(True, "id.example", 443, "/keys")),
        ("https://id.example", KeyUrl(True, "id.example", 443, "/")),
        ("https://id.example:8443/a?b=c", KeyUrl(True, "id.example", 8443, "/a?b=c")),
        ("https://[::1]:1/k", KeyUrl(True, "::1", 1, "/k")),
        ("http://127.0.0.1:8080/k", KeyUrl(False, "127.0.0.1", 8080, "/k")),
        ("http://localhost/k", KeyUrl(False, "localhost", 80, "/k")),
    ],
)
def test_a_url_is_taken_apart(text: str, url: KeyUrl) -> None:
    assert key_url(text) == url
    assert key_url(str(url)) == url
    assert checked_key_place(text) == text


@pytest.mark.parametrize("text", ["", "keys.json", "/etc/tidemark/keys.json", "file:keys"])
def test_anything_else_is_a_file(text: str) -> None:
    assert key_url(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://id.example/keys", "speaks no TLS"),
        ("http://10.0.0.1/keys", "speaks no TLS"),
        ("ftp://id.example/keys", "must be https://HOST/PATH"),
        ("file:///etc/passwd", "must be https://HOST/PATH"),
        ("https:///keys", "must be https://HOST/PATH"),
        ("https://id.example:port/", "is no URL"),
        ("https://[::1/", "is no URL"),
        ("https://id.example/a b", "no spaces"),
        ("https://id.example/\r\nX: y", "no spaces"),
        ("https://id.exämple/", "ASCII"),
        ("https://id.example/" + "a" * URL_LENGTH_MAX, "at most 2048"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked_key_place(text)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="a user or a password") as error:
        key_url("https://ann:s3cret@id.example/keys")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://ann:s3cret@[::1/", "a user or a password"),
        ("https://ann:s3cret/x@id.example/keys", "a user or a password"),
        ("ftp:///x?token=s3cret", "'ftp:///x.token=...' must be https"),
        ("http://id.example/keys?token=s3cret", "keys.token=...' speaks no TLS"),
        ("https://id.example:port/?token=s3cret", "token=...' is no URL"),
    ],
)
def test_what_may_be_secret_in_a_wrong_url_is_not_shown(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        key_url(text)
    assert "s3cret" not in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_a_file_or_a_url_or_refused(text: str) -> None:
    for place in (text, f"https://{text}"):
        try:
            url = key_url(place)
        except ValueError:
            continue
        assert url is None or url.host
