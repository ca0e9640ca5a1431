"""Grants: how they are written, and what their patterns fit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.security.grants import (
    PATTERN_LENGTH_MAX,
    SEE,
    Action,
    Grant,
    Resource,
    ResourceKind,
    matches,
    parsed_grant,
)
from broker.model.failure import Refused, StreamingCode

LETTERS = st.text("ab*?", max_size=8)


@given(LETTERS, st.text("ab", max_size=8))
def test_a_pattern_fits_what_the_same_regular_expression_fits(pattern: str, name: str) -> None:
    naive = "".join({"*": ".*", "?": "."}.get(it, it) for it in pattern)
    assert matches(pattern, name) == (re.fullmatch(naive, name, re.DOTALL) is not None)


def test_a_pattern_of_many_stars_is_judged_in_steps_that_one_can_count() -> None:
    # A regular expression of this form would need ages.
    assert not matches("a*" * 100 + "b", "a" * 255)


def test_other_signs_of_a_pattern_stand_for_themselves() -> None:
    assert matches("a.c[0]", "a.c[0]")
    assert not matches("a.c", "abc")


@given(
    st.sampled_from([*Action, None]),
    st.sampled_from([*ResourceKind, None]),
    st.text(min_size=1, max_size=PATTERN_LENGTH_MAX),
)
def test_a_grant_comes_back_from_its_text(
    action: Action | None, kind: ResourceKind | None, pattern: str
) -> None:
    grant = Grant(action, kind, pattern)
    assert parsed_grant(str(grant)) == grant


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not ACTION:KIND:PATTERN"),
        ("consume", "is not ACTION:KIND:PATTERN"),
        ("consume:collection", "is not ACTION:KIND:PATTERN"),
        ("consume:collection:", "is not ACTION:KIND:PATTERN"),
        ("eat:collection:x", "'eat' is no action; use produce, consume"),
        ("consume:table:x", "'table' is no kind; use collection, channel"),
        (f"consume:collection:{'x' * 256}", "256 characters; at most 255"),
    ],
)
def test_a_text_that_is_no_grant_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)) as refused:
        parsed_grant(text)
    assert refused.value.refusal.code is StreamingCode.INVALID_ARGUMENT


CONSUME = frozenset({Action.CONSUME})


@pytest.mark.parametrize(
    ("grant", "resource", "allowed"),
    [
        ("consume:collection:a*", Resource(ResourceKind.COLLECTION, "ab"), True),
        ("consume:collection:a*", Resource(ResourceKind.COLLECTION, "b"), False),
        ("produce:collection:*", Resource(ResourceKind.COLLECTION, "a"), False),
        ("*:collection:*", Resource(ResourceKind.COLLECTION, "a"), True),
        ("consume:*:*", Resource(ResourceKind.CURSOR, "c"), True),
        ("consume:cursor:*", Resource(ResourceKind.GROUP, "c"), False),
        # A collection stands for its channels, but a channel not for its collection.
        ("consume:collection:a", Resource(ResourceKind.CHANNEL, "p_1v0", "a"), True),
        ("consume:collection:a", Resource(ResourceKind.CHANNEL, "p_1v0", "b"), False),
        ("consume:collection:*", Resource(ResourceKind.CHANNEL, "p_1v0"), False),
        ("consume:channel:p_*", Resource(ResourceKind.CHANNEL, "p_1v0", "a"), True),
        ("consume:channel:*", Resource(ResourceKind.COLLECTION, "a"), False),
        ("consume:group:*", Resource(ResourceKind.CHANNEL, "p_1v0", "a"), False),
    ],
)
def test_the_table_of_what_a_grant_allows(grant: str, resource: Resource, allowed: bool) -> None:
    assert parsed_grant(grant).allows(CONSUME, resource) is allowed


def test_who_may_do_anything_with_a_thing_sees_it() -> None:
    for action in Action:
        grant = Grant(action, ResourceKind.COLLECTION, "a")
        assert grant.allows(SEE, Resource(ResourceKind.COLLECTION, "a"))
        assert not grant.allows(SEE, Resource(ResourceKind.COLLECTION, "b"))
