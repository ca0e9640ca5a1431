"""Each check of a header and of claims, and who the claims speak of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.security.access_book import AccessBook, AccessDecision, Origin
from broker.core.security.book_changes import with_user
from broker.core.security.grants import Action, Resource, ResourceKind
from broker.core.security.jwt_rules import (
    ALGORITHMS,
    KEY_ID_LENGTH_MAX,
    LEEWAY_MS,
    NAME_LENGTH_MAX,
    ROLE_LENGTH_MAX,
    ROLES_MAX,
    TIME_S_MAX,
    JwtHeader,
    JwtRules,
    checked_algorithms,
    checked_header,
    parsed_algorithms,
    principal_of,
)
from broker.model.failure import Refused, StreamingCode

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
RULES = JwtRules("https://id", "tidemark")
GOOD: dict[str, Any] = {"iss": "https://id", "aud": "tidemark", "sub": "ann", "exp": NOW_S + 60}


def refused(claims: dict[str, Any], rules: JwtRules = RULES) -> str:
    with pytest.raises(Refused) as error:
        principal_of(claims, rules, NOW_MS)
    assert error.value.refusal.code is StreamingCode.NOT_AUTHENTICATED
    return error.value.refusal.cause


def refused_header(header: dict[str, Any]) -> str:
    with pytest.raises(Refused) as error:
        checked_header(header, RULES)
    assert error.value.refusal.code is StreamingCode.NOT_AUTHENTICATED
    return error.value.refusal.cause


def test_claims_name_a_principal_until_they_expire() -> None:
    found = principal_of(GOOD, RULES, NOW_MS)
    assert (found.name, found.origin) == ("jwt:ann", Origin.OTHER)
    assert (found.roles, found.expires_ms) == ((), NOW_MS + 60_000)
    book = AccessBook()
    assert book.holds_good(found, NOW_MS + 59_999)
    assert not book.holds_good(found, NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"iss": "https://other"}, "another issuer (claim `iss`)"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://id"]}, "another issuer"),
        ({"aud": "other"}, "another audience (claim `aud`)"),
        ({"aud": None}, "another audience"),
        ({"aud": ["a", "b"]}, "another audience"),
        ({"aud": {"tidemark": 1}}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": "tidemark2"}, "another audience"),
        ({"exp": NOW_S}, "has expired (claim `exp`)"),
        ({"exp": 0}, "has expired"),
        ({"exp": NOW_S - LEEWAY_MS // 1000}, "has expired"),
        ({"exp": None}, "has a time that is none (claim `exp`)"),
        ({"exp": str(NOW_S + 60)}, "has a time that is none"),
        ({"exp": True}, "has a time that is none"),
        ({"exp": float("nan")}, "has a time that is none"),
        ({"exp": float("inf")}, "has a time that is none"),
        ({"exp": 10**400}, "has a time that is none"),
        ({"exp": -1}, "has a time that is none"),
        ({"exp": TIME_S_MAX + 1}, "has a time that is none"),
        ({"nbf": NOW_S + LEEWAY_MS // 1000 + 1}, "is not valid yet (claim `nbf`)"),
        ({"nbf": "now"}, "has a time that is none (claim `nbf`)"),
        ({"iat": NOW_S + LEEWAY_MS // 1000 + 1}, "was issued in the future (claim `iat`)"),
        ({"iat": []}, "has a time that is none (claim `iat`)"),
        ({"sub": None}, "does not name its user (claim 'sub'"),
        ({"sub": ""}, "does not name its user"),
        ({"sub": "  "}, "does not name its user"),
        ({"sub": "a\nb"}, "does not name its user"),
        ({"sub": "\ud800"}, "does not name its user"),
        ({"sub": 5}, "does not name its user"),
        ({"sub": "a" * (NAME_LENGTH_MAX + 1)}, "of over 255 characters"),
        ({"tidemark_roles": {"admin": True}}, "has roles (claim 'tidemark_roles'"),
        ({"tidemark_roles": ["admin", 5]}, "has roles"),
        ({"tidemark_roles": [f"r{it}" for it in range(ROLES_MAX + 1)]}, "has 257 roles"),
    ],
)
def test_each_wrong_claim_is_refused_by_its_name(changed: dict[str, Any], words: str) -> None:
    cause = refused({**GOOD, **changed})
    assert cause.startswith("not authenticated: the JWT ")
    assert words in cause


def test_a_missing_expiry_is_refused() -> None:
    assert "does not say when it expires" in refused(
        {name: it for name, it in GOOD.items() if name != "exp"}
    )


def test_a_clock_may_be_a_minute_ahead() -> None:
    ahead = NOW_S + LEEWAY_MS // 1000
    assert principal_of({**GOOD, "nbf": ahead, "iat": ahead}, RULES, NOW_MS).name == "jwt:ann"


def test_one_of_several_audiences_is_enough() -> None:
    found = principal_of({**GOOD, "aud": ["other", {}, "tidemark"]}, RULES, NOW_MS)
    assert found.name == "jwt:ann"


def test_fractions_of_seconds_count() -> None:
    assert principal_of({**GOOD, "exp": NOW_S + 0.5}, RULES, NOW_MS).expires_ms == NOW_MS + 500


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        (["writer", "reader", "reader"], ("reader", "writer")),
        ("writer reader", ("reader", "writer")),
        ("", ()),
        ([], ()),
        (None, ()),
        (["a" * ROLE_LENGTH_MAX, "a" * (ROLE_LENGTH_MAX + 1)], ("a" * ROLE_LENGTH_MAX,)),
    ],
)
def test_roles_are_a_list_or_a_text(given: object, roles: tuple[str, ...]) -> None:
    assert principal_of({**GOOD, "tidemark_roles": given}, RULES, NOW_MS).roles == roles


def test_a_path_leads_to_a_claim_unless_one_has_that_name() -> None:
    rules = JwtRules("https://id", "tidemark", "who.name", "realm_access.roles")
    deep = {**GOOD, "who": {"name": "eve"}, "realm_access": {"roles": ["reader"]}}
    found = principal_of(deep, rules, NOW_MS)
    assert (found.name, found.roles) == ("jwt:eve", ("reader",))
    flat = {**deep, "realm_access.roles": ["writer"]}
    assert principal_of(flat, rules, NOW_MS).roles == ("writer",)
    assert principal_of({**deep, "realm_access": "x"}, rules, NOW_MS).roles == ()


def test_roles_grant_what_the_book_says_and_unknown_ones_nothing() -> None:
    consume = frozenset({Action.CONSUME})
    clicks = (Resource(ResourceKind.COLLECTION, "clicks"),)
    book = AccessBook()
    reader = principal_of({**GOOD, "tidemark_roles": ["reader"]}, RULES, NOW_MS)
    assert book.decide(reader, consume, clicks) is AccessDecision.ALLOWED
    assert book.decide(reader, frozenset({Action.PRODUCE}), clicks) is AccessDecision.DENIED
    nobody = principal_of({**GOOD, "tidemark_roles": ["Admin", "root", "*"]}, RULES, NOW_MS)
    assert book.decide(nobody, consume, clicks) is AccessDecision.DENIED


def test_a_stored_user_of_the_same_name_lends_no_role() -> None:
    book = with_user(AccessBook(), "ann", ["admin"], replaces=False)
    assert book.roles_of(principal_of(GOOD, RULES, NOW_MS)) == ()


@given(st.text(min_size=1, max_size=60))
def test_no_stored_user_has_the_name_of_a_jwt(name: str) -> None:
    try:
        found = principal_of({**GOOD, "sub": name}, RULES, NOW_MS)
    except Refused:
        return
    with pytest.raises(Refused):
        with_user(AccessBook(), found.name, [], replaces=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "nbf", "iat", "tidemark_roles"]), JSON))
def test_any_claims_name_somebody_who_has_not_expired_or_are_refused(
    claims: dict[str, Any],
) -> None:
    try:
        found = principal_of({**GOOD, **claims}, RULES, NOW_MS)
    except Refused:
        return
    assert found.expires_ms > NOW_MS
    assert found.name.startswith("jwt:")
    assert isinstance(found.roles, tuple)


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "jku", "jwk"]), JSON))
def test_any_header_is_understood_or_refused(header: dict[str, Any]) -> None:
    try:
        found = checked_header(header, RULES)
    except Refused:
        return
    assert found.algorithm in ALGORITHMS
    assert found.key_id


def test_of_a_header_only_key_and_algorithm_count() -> None:
    header = {
        "alg": "ES256",
        "kid": "../k",
        "typ": "at+JWT",
        "jku": "https://evil/keys",
        "x5u": "https://evil/cert",
        "jwk": {"kty": "oct", "k": "AA"},
    }
    assert checked_header(header, RULES) == JwtHeader("ES256", "../k")
    assert checked_header({"alg": "RS256", "kid": "k"}, RULES) == JwtHeader("RS256", "k")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, "`alg`"),
        ({"alg": "none"}, "`alg`"),
        ({"alg": "None"}, "`alg`"),
        ({"alg": "HS256"}, "`alg`"),
        ({"alg": "es256"}, "`alg`"),
        ({"alg": "ES256K"}, "`alg`"),
        ({"alg": ["ES256"]}, "`alg`"),
        ({"alg": "ES256", "typ": "logout+jwt"}, "`typ`"),
        ({"alg": "ES256", "typ": None}, "`typ`"),
        ({"alg": "ES256", "crit": []}, "`crit`"),
        ({"alg": "ES256", "crit": ["b64"]}, "`crit`"),
        ({"alg": "ES256"}, "`kid`"),
        ({"alg": "ES256", "kid": ""}, "`kid`"),
        ({"alg": "ES256", "kid": 1}, "`kid`"),
        ({"alg": "ES256", "kid": "k" * (KEY_ID_LENGTH_MAX + 1)}, "`kid`"),
    ],
)
def test_each_wrong_header_is_refused_by_its_name(header: dict[str, Any], words: str) -> None:
    assert words in refused_header(header)


def test_an_operator_may_accept_fewer_algorithms() -> None:
    rules = JwtRules(
        "i", "a", algorithms=parsed_algorithms(checked_algorithms("ES256, EdDSA,ES256"))
    )
    assert rules.algorithms == ("ES256", "EdDSA")
    with pytest.raises(Refused, match="accepts ES256, EdDSA"):
        checked_header({"alg": "RS256", "kid": "k"}, rules)


@pytest.mark.parametrize("text", ["none", "HS256", "RS256,HS512", "", " , "])
def test_no_symmetric_algorithm_can_be_set(text: str) -> None:
    with pytest.raises(ValueError, match="choose among RS256"):
        checked_algorithms(text)
