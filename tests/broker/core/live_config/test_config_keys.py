"""Keys have one form, and names with path tricks are refused."""

import pytest

from broker.core.live_config.config_keys import (
    BadKey,
    config_key,
    config_prefix,
    is_setting,
    meant_setting,
    shown_key,
)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("retention_ms", "retention_ms"),
        ("/Retention_MS", "retention_ms"),
        ("master.address", "master/address"),
        ("/pulsar/ip", "pulsar/ip"),
        ("APP.Colour", "app/colour"),
        ("app/two words", "app/two words"),
        ("app/größe", "app/größe"),
        (".a", "a"),
    ],
)
def test_a_key_has_one_form(text: str, key: str) -> None:
    assert config_key(text) == key
    assert config_key(shown_key(key)) == key


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("/", "is empty"),
        ("a//b", "empty part"),
        ("//a", "empty part"),
        ("a/", "empty part"),
        ("../a", "'..'"),
        ("app/../../x", "'..'"),
        ("app..x", "'..'"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\u202eb", "control character"),
        ("\ud800", "control character"),
        ("x" * 513, "513 bytes"),
    ],
)
def test_other_keys_are_refused_with_their_cause(text: str, says: str) -> None:
    with pytest.raises(BadKey, match=says.replace("..", r"\.\.")):
        config_key(text)


def test_a_prefix_is_plain_text_in_the_form_of_keys() -> None:
    assert [config_prefix(it) for it in ("", "/", "/Ma", "a.b", "a/")] == [
        "",
        "",
        "ma",
        "a/b",
        "a/",
    ]
    for bad in ("/../..", "a\x07"):
        with pytest.raises(BadKey):
            config_prefix(bad)


def test_one_part_is_a_setting_and_several_are_free() -> None:
    assert is_setting("retention_ms")
    assert not is_setting("app/colour")
    assert meant_setting("retention/ms") == "retention_ms"
