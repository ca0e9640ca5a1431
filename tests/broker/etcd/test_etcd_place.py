"""URLs of etcd: what is taken, and what a wrong one is told."""

import re

import pytest

from broker.etcd.place import EtcdPlace, checked_meta, etcd_place


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("etcd://a/p", EtcdPlace((("a", 2379),), "p")),
        ("etcd://a,b:1,[::1]:2,[::2]/p/q/", EtcdPlace(
            (("a", 2379), ("b", 1), ("::1", 2), ("::2", 2379)), "p/q"
        )),
        ("etcd://me@10.0.0.1:9/p", EtcdPlace((("10.0.0.1", 9),), "p", "me")),
    ],
)  # fmt: skip
def test_a_url_names_members_a_prefix_and_maybe_a_user(url: str, place: EtcdPlace) -> None:
    assert etcd_place(url) == place
    assert etcd_place(str(place)) == place


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://a/p", "'http://a/p' is no URL of etcd, such as etcd://10.0.0.1:2379"),
        ("a:2379/p", "is no URL of etcd"),
        ("etcd://a", "names no prefix"),
        ("etcd://a/", "names no prefix"),
        ("etcd://a//p", "names no prefix"),
        ("etcd://a/p?tls=1", "other characters than"),
        (f"etcd://a/{'p' * 201}", "more than 200"),
        ("etcd:///p", "'' in 'etcd:///p' is no HOST"),
        ("etcd://a,,b/p", "'' in"),
        ("etcd://a:0/p", "'a:0' in"),
        ("etcd://a:x/p", "'a:x' in"),
        ("etcd://a b/p", "'a b' in"),
        ("etcd://a,a:2379/p", "names an endpoint twice"),
        ("etcd://@a/p", "empty user"),
        (f"etcd://{','.join(f'h{it}' for it in range(17))}/p", "names 17 endpoints; at most 16"),
    ],
)
def test_a_wrong_or_half_given_url_is_told(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        etcd_place(url)


def test_no_url_means_metadata_that_is_not_in_etcd() -> None:
    assert checked_meta("") == ""
    assert checked_meta("etcd://a/p/") == "etcd://a/p/"


def test_a_password_has_no_place_in_a_url_and_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="set meta_password_file") as caught:
        etcd_place("etcd://me:secret@a/p")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://u:hunter2@a/p",
        "u:hunter2@a/p",
        "etcd://u:/hunter2@a/p",
        "etcd://u:hunter2@a",
        "etcd://u:hunter2@a/p?x",
        "etcd://u:pw@a/p?password=hunter2",
        "etcd://a/p?password=hunter2",
        "etcd://a?password=hunter2/p",
        "etcd://@a?password=hunter2/p",
        "etcd://a,a?password=hunter2/p",
        "etcd://u@a&password=hunter2/p",
    ],
)
def test_what_may_be_secret_in_a_wrong_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"etcd://|meta_password_file") as caught:
        etcd_place(url)
    assert "hunter2" not in str(caught.value)
