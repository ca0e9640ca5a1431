"""What a request for configuration finds: the reference's examples, and a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.live_config.answers import NoSuchKey, SortedEntries, TooMuch
from broker.core.live_config.config_keys import BadKey
from broker.model.master.live_config import (
    KEYS_MAX,
    PREFIXES_MAX,
    TOTAL_BYTES_MAX,
    VALUE_BYTES_MAX,
    ConfigEntry,
)

REFERENCE = {
    "a/suba1": "v1",
    "a/suba2": "v2",
    "a/suba3/subsuba1": "v3",
    "a/suba3/subsuba2": "v4",
}


def entries(values: dict[str, str]) -> SortedEntries:
    return SortedEntries({key: ConfigEntry(key, value, 1) for key, value in values.items()})


def keys(found: list[ConfigEntry]) -> list[str]:
    return [it.key for it in found]


def test_get_answers_in_the_order_of_the_request() -> None:
    stored = entries(REFERENCE)
    found = stored.get(["/a/suba1", "/a/suba3/subsuba2"])
    assert [it.value for it in found] == ["v1", "v4"]
    again = stored.get(["/A/suba3/subsuba2", "a.suba1", "/a/suba1"])
    assert [it.value for it in again] == ["v4", "v1", "v1"]
    assert stored.get([]) == []


def test_one_missing_key_fails_the_whole_get_and_is_named() -> None:
    with pytest.raises(NoSuchKey, match="no entry has the key /a/subA9".lower()):
        entries(REFERENCE).get(["/a/suba1", "/a/subA9"])


def test_a_prefix_is_plain_text_and_answers_ascend() -> None:
    stored = entries({**REFERENCE, "master/address": "localhost", "proxy/timezone": "UTC+8"})
    assert keys(stored.by_prefix("/a")) == sorted(REFERENCE)
    assert keys(stored.by_prefix("/ma")) == ["master/address"]
    assert keys(stored.by_prefix("/proxy")) == ["proxy/timezone"]
    assert keys(stored.by_prefix("/config")) == []
    assert keys(stored.by_prefix("/")) == sorted([*REFERENCE, "master/address", "proxy/timezone"])
    assert stored.by_prefix("/") == stored.by_prefix("")
    with pytest.raises(BadKey):
        stored.by_prefix("/../..")


def test_a_request_answers_prefixes_first_and_each_key_once() -> None:
    stored = entries({**REFERENCE, "master/address": "localhost"})
    found = stored.request(["/master/address", "/a/suba1", "/master/address"], ["/a/suba3", "/a"])
    assert keys(found) == [
        "a/suba3/subsuba1",
        "a/suba3/subsuba2",
        "a/suba1",
        "a/suba2",
        "master/address",
    ]
    with pytest.raises(NoSuchKey):
        stored.request(["/nothing"], ["/a"])


PARTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@given(st.sets(PARTS), st.text("abc/", max_size=4))
def test_prefixes_find_what_a_search_through_everything_finds(stored: set[str], begin: str) -> None:
    found = entries(dict.fromkeys(stored, "v")).by_prefix("/" + begin)
    assert keys(found) == sorted(it for it in stored if it.startswith(begin))


def test_a_question_has_limits_and_so_has_an_answer_with_repetitions() -> None:
    large = entries({"app/a": "x" * VALUE_BYTES_MAX, "app/b": ""})
    fits = TOTAL_BYTES_MAX // (VALUE_BYTES_MAX + len("app/a"))
    assert len(large.get(["app/a"] * fits)) == fits
    with pytest.raises(TooMuch, match="name each key once"):
        large.get(["app/a"] * (fits + 1))
    assert len(large.get(["app/b"] * KEYS_MAX)) == KEYS_MAX
    with pytest.raises(TooMuch, match="10,001 keys; send at most 10,000"):
        large.get(["app/b"] * (KEYS_MAX + 1))
    assert len(large.request(["app/a"] * KEYS_MAX, [])) == 1
    assert len(large.request([], ["/"] * PREFIXES_MAX)) == 2
    with pytest.raises(TooMuch, match="101 prefixes; send at most 100"):
        large.request([], ["/"] * (PREFIXES_MAX + 1))
