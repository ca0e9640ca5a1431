"""The setting `limits`: what it means, and what is wrong with what means nothing."""

import pytest

from broker.core.pressure.limit_rules import (
    RULES_MAX,
    UNLIMITED,
    BadLimits,
    LimitRules,
    Limits,
    Scope,
    Subject,
    checked_limits,
    name_without_collection,
    parsed_limits,
)


def collection(name: str) -> Subject:
    return Subject(Scope.COLLECTION, name)


def test_no_text_means_no_limits() -> None:
    for text in ("", " ; ;\n"):
        assert not parsed_limits(text)
        assert checked_limits(text) == text
    assert LimitRules().of(collection("clicks")) == UNLIMITED


def test_each_rule_is_a_subject_with_its_limits() -> None:
    rules = parsed_limits(
        "collection:clicks in_bytes=10 in_messages=5\n"
        "identity:alice out_bytes=7 streams=2 connections=3 transactions=4 calls=5;"
    )
    assert rules
    assert rules.of(collection("clicks")) == Limits(in_bytes=10, in_messages=5)
    assert rules.of(Subject(Scope.IDENTITY, "alice")) == Limits(
        out_bytes=7, streams=2, connections=3, transactions=4, calls=5
    )
    assert rules.of(Subject(Scope.IDENTITY, "clicks")) == UNLIMITED


def test_bytes_may_have_a_unit() -> None:
    rules = parsed_limits("collection:a in_bytes=2KiB out_bytes=3MiB storage=10GiB")
    assert rules.of(collection("a")) == Limits(
        in_bytes=2 << 10, out_bytes=3 << 20, storage=10 << 30
    )
    assert rules.storage_of("a") == 10 << 30
    assert parsed_limits("collection:a storage=1024TiB").storage_of("a") == 1 << 50


def test_only_rules_with_storage_limit_what_is_stored() -> None:
    rules = parsed_limits("collection:a in_bytes=1; collection:* storage=5; identity:b streams=1")
    assert list(rules.storage) == [collection("*")]
    assert rules.storage_of("other") == 5
    assert rules.storage_of("a") == 0, "the longest name that fits is the only one that holds"


def test_a_vchannel_of_no_collection_goes_by_the_id_in_its_name() -> None:
    assert name_without_collection("by-dev-rootcoord-dml_0_77v1") == "77"
    assert name_without_collection("by-dev-rootcoord-dml_0_vcchan") == (
        "by-dev-rootcoord-dml_0_vcchan"
    )


def test_the_longest_name_that_fits_is_the_only_one_that_holds() -> None:
    rules = parsed_limits(
        "collection:* in_bytes=1; collection:app_* in_bytes=2 out_bytes=9;"
        "collection:app_a in_bytes=3"
    )
    found = [rules.of(collection(it)).in_bytes for it in ("other", "app_b", "app_", "app_a")]
    assert found == [1, 2, 2, 3]
    assert rules.of(collection("app_a")).out_bytes == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clicks in_bytes=1", "'clicks' is no subject; write collection:NAME"),
        ("topic:clicks in_bytes=1", "is no subject"),
        ("collection: in_bytes=1", "names nothing"),
        ("collection:a*b in_bytes=1", "names nothing"),
        ("collection:a", "has no limits"),
        (
            "collection:a bytes=1",
            "'bytes=1' is no limit; write each once, as NAME=NUMBER: in_bytes",
        ),
        ("collection:a in_bytes=1 in_bytes=2", "write each once"),
        ("collection:a in_bytes", "needs a number"),
        ("collection:a in_bytes=0", "needs a number from 1"),
        ("collection:a in_bytes=-1", "needs a number"),
        ("collection:a in_bytes=1e3", "needs a number"),
        ("collection:a in_bytes=²", "needs a number"),
        ("collection:a in_bytes=9999999999999999", "needs a number from 1 to"),
        ("collection:a in_bytes=" + "9" * 5000, "needs a number from 1 to"),
        ("collection:a in_bytes=1GB", "with KiB, MiB, GiB, TiB if you like"),
        ("collection:a storage=1.5GiB", "needs a number"),
        ("collection:a storage=1025TiB", "needs a number from 1 to"),
        ("collection:a storage=GiB", "needs a number"),
        ("collection:a in_messages=1KiB", "needs a number"),
        (
            "identity:bob storage=1GiB",
            "storage is a limit of collections, because the log does not keep who wrote a message",
        ),
        ("user:bob storage=1GiB", "'user:bob' is no subject; write collection:NAME"),
        ("collection:a streams=1", "streams is a limit of identities"),
        ("collection:a in_bytes=1; collection:a in_bytes=2", "has two rules"),
        ("\n".join(f"collection:a{it} in_bytes=1" for it in range(RULES_MAX + 1)), "too many"),
    ],
)
def test_what_states_no_limits_is_refused_with_the_part_that_is_wrong(text: str, why: str) -> None:
    with pytest.raises(BadLimits, match=why.replace("*", r"\*")):
        parsed_limits(text)
