"""Who may do what: a table, and a naive model for everything else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.security import access_book
from broker.core.security.access_book import (
    BUILT_IN,
    PROCESS,
    AccessBook,
    AccessDecision,
    Origin,
    Principal,
    Role,
    User,
)
from broker.core.security.grants import Action, Grant, Resource, ResourceKind, parsed_grant
from broker.core.security.tokens import StoredToken, TokenText, digest_of

SECRET = "s" * 43
ANN, BOB = Principal("ann", Origin.TOKEN, "t1", expires_ms=1000), Principal("bob", Origin.OTHER)


def book(**grants: str) -> AccessBook:
    """User `ann` with a role for each, whose grants are separated by spaces."""
    roles = {
        name: Role(name, tuple(map(parsed_grant, text.split()))) for name, text in grants.items()
    }
    token = StoredToken("t1", "ann", b"x", digest_of(b"x", SECRET), made_ms=1, expires_ms=1000)
    return AccessBook({"ann": User("ann", tuple(grants))}, roles, {"t1": token}, epoch=7)


def may(of: AccessBook, who: Principal, action: Action, *resources: Resource) -> bool:
    return of.decide(who, frozenset({action}), resources) is AccessDecision.ALLOWED


A, B = Resource(ResourceKind.COLLECTION, "a"), Resource(ResourceKind.COLLECTION, "b")


@pytest.mark.parametrize(
    ("who", "action", "resources", "allowed"),
    [
        (ANN, Action.CONSUME, [A], True),
        (ANN, Action.PRODUCE, [A], False),
        (ANN, Action.CONSUME, [B], False),
        # All of what a request names must be allowed.
        (ANN, Action.CONSUME, [A, B], False),
        (ANN, Action.PRODUCE, [B], True),
        # A request that names nothing is not allowed by having no objection.
        (ANN, Action.CONSUME, [], False),
        # Nobody in the book, and a user of the book without roles of its own in the proof.
        (BOB, Action.CONSUME, [A], False),
        (replace(BOB, roles=("r",)), Action.CONSUME, [A], True),
        (replace(ANN, roles=()), Action.CONSUME, [A], False),
        (replace(ANN, roles=("gone",)), Action.CONSUME, [A], False),
        (replace(ANN, roles=("admin",)), Action.CHAOS, [Resource(ResourceKind.CLUSTER, "c")], True),
        (PROCESS, Action.CHAOS, [], True),
    ],
)
def test_the_table_of_decisions(
    who: Principal, action: Action, resources: list[Resource], allowed: bool
) -> None:
    known = book(r="consume:collection:a", w="produce:collection:b")
    assert may(known, who, action, *resources) is allowed
    # Again: what is remembered is what was decided.
    assert may(known, who, action, *resources) is allowed


NAMES = st.sampled_from(["a", "ab", "b", ""])
GRANTS = st.builds(
    Grant,
    st.sampled_from([Action.CONSUME, Action.PRODUCE, None]),
    st.sampled_from([ResourceKind.COLLECTION, ResourceKind.CHANNEL, ResourceKind.CURSOR, None]),
    st.sampled_from(["*", "a", "a*", "?", "b"]),
)
RESOURCES = st.builds(
    Resource,
    st.sampled_from([ResourceKind.COLLECTION, ResourceKind.CHANNEL, ResourceKind.CURSOR]),
    NAMES,
    NAMES,
)
PATTERNS = {"*": {"a", "ab", "b", ""}, "a": {"a"}, "a*": {"a", "ab"}, "?": {"a", "b"}, "b": {"b"}}


def naive(grants: list[Grant], actions: frozenset[Action], resources: list[Resource]) -> bool:
    """The rule, in the words of the page: each resource needs one grant that fits it."""

    def fits(grant: Grant, it: Resource) -> bool:
        action = grant.action is None or grant.action in actions
        own = (grant.kind in (None, it.kind)) and it.name in PATTERNS[grant.pattern]
        of_collection = (
            grant.kind is ResourceKind.COLLECTION
            and it.kind is not ResourceKind.COLLECTION
            and it.collection != ""
            and it.collection in PATTERNS[grant.pattern]
        )
        return action and (own or of_collection)

    return bool(resources) and all(any(fits(grant, it) for grant in grants) for it in resources)


@given(
    st.lists(st.lists(GRANTS, max_size=3), max_size=3),
    st.lists(
        st.tuples(
            st.frozensets(st.sampled_from([Action.CONSUME, Action.PRODUCE]), min_size=1),
            st.lists(RESOURCES, max_size=3),
        ),
        max_size=6,
    ),
)
def test_whatever_is_asked_in_whatever_order_the_answer_is_that_of_the_naive_rule(
    roles: list[list[Grant]], questions: list[tuple[frozenset[Action], list[Resource]]]
) -> None:
    named = {f"r{number}": Role(f"r{number}", tuple(it)) for number, it in enumerate(roles)}
    known = AccessBook({"ann": User("ann", tuple(named))}, named)
    for actions, resources in questions:
        allowed = known.decide(ANN, actions, resources) is AccessDecision.ALLOWED
        assert allowed == naive([it for role in roles for it in role], actions, resources)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_book, "REMEMBERED_MAX", 3)
    known = book(r="consume:collection:1*")
    answers = [
        may(known, ANN, Action.CONSUME, Resource(ResourceKind.COLLECTION, str(it)))
        for it in range(20)
    ]
    assert answers == [str(it).startswith("1") for it in range(20)]


def test_a_token_proves_its_user_until_it_expires_and_only_with_its_secret() -> None:
    known = book(r="consume:collection:a")
    assert known.bearer(TokenText("t1", SECRET), 999) == ANN
    assert known.bearer(TokenText("t1", SECRET), 1000) is None
    assert known.bearer(TokenText("t1", "S" * 43), 999) is None
    assert known.bearer(TokenText("t2", SECRET), 999) is None
    assert replace(known, users={}).bearer(TokenText("t1", SECRET), 999) is None


def test_a_certificate_proves_a_user_of_its_name() -> None:
    known = book()
    assert known.certified("ann") == Principal("ann", Origin.CERTIFICATE)
    assert known.certified("bob") is None


def test_a_proof_holds_good_while_its_token_and_its_user_are_there() -> None:
    known = book()
    certified, process = Principal("ann", Origin.CERTIFICATE), PROCESS
    assert known.holds_good(ANN, 999)
    assert known.holds_good(certified, 999)
    assert known.holds_good(process, 999)
    assert not known.holds_good(ANN, 1000)
    assert not replace(known, tokens={}).holds_good(ANN, 999)
    for who in (ANN, certified):
        assert not replace(known, users={}).holds_good(who, 999)
    # Somebody whom another way has proved needs no record.
    assert AccessBook().holds_good(BOB, 999)


def test_administrators_are_those_who_may_administer_every_cluster() -> None:
    users = {
        "root": User("root", ("admin",)),
        "own": User("own", ("mine",)),
        "one": User("one", ("named",)),
        "none": User("none", ("reader", "writer", "observer")),
    }
    roles = {
        "mine": Role("mine", (parsed_grant("admin:cluster:*"),)),
        "named": Role("named", (parsed_grant("admin:cluster:by-dev"),)),
    }
    assert AccessBook(users, roles).admins() == ["own", "root"]


def test_built_in_roles_go_before_stored_ones_of_their_name() -> None:
    known = AccessBook(roles={"admin": Role("admin", ())})
    assert known.role("admin") is BUILT_IN["admin"]
    assert known.role("nobody") is None
