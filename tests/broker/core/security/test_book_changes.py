"""Changes of users, roles and tokens: what they give, and what is refused with which words."""

import re
from collections.abc import Callable

import pytest

from broker.core.security import book_changes
from broker.core.security.access_book import AccessBook, Role, User
from broker.core.security.book_changes import (
    with_role,
    with_token,
    with_user,
    without_role,
    without_token,
    without_user,
)
from broker.core.security.grants import parsed_grant
from broker.core.security.tokens import StoredToken
from broker.model.failure import Refused, StreamingCode

GRANT = "consume:collection:a"
NOW_MS = 1000


def token(id: str, user: str = "ann", expires_ms: int = 0, note: str = "") -> StoredToken:
    return StoredToken(id, user, b"s", b"d", 1, expires_ms, note)


@pytest.fixture
def book() -> AccessBook:
    """An administrator, and `ann` with a role and a token."""
    role = Role("r", (parsed_grant(GRANT),))
    users = {"root": User("root", ("admin",)), "ann": User("ann", ("r",))}
    return AccessBook(users, {"r": role}, {"t1": token("t1")}, epoch=3)


def test_a_role_is_added_and_replaced(book: AccessBook) -> None:
    added = with_role(book, "w", [GRANT, GRANT, "produce:*:b"], replaces=False)
    assert [str(it) for it in added.roles["w"].grants] == [GRANT, "produce:*:b"]
    changed = with_role(added, "w", [GRANT], replaces=True)
    assert [str(it) for it in changed.roles["w"].grants] == [GRANT]
    assert without_role(changed, "w").roles == book.roles


def test_a_user_is_added_and_replaced_and_goes_with_its_tokens(book: AccessBook) -> None:
    added = with_user(book, "bob", ["reader", "r", "r"], replaces=False)
    assert added.users["bob"] == User("bob", ("reader", "r"))
    assert with_user(added, "bob", [], replaces=True).users["bob"].roles == ()
    two = with_token(added, token("t2", "bob"), NOW_MS)
    gone = without_user(two, "bob")
    assert (gone.users, gone.tokens) == (book.users, book.tokens)


def test_a_token_is_added_and_revoked_and_old_ones_are_forgotten(book: AccessBook) -> None:
    expiring = with_token(book, token("t2", expires_ms=NOW_MS + 1), NOW_MS)
    assert set(expiring.tokens) == {"t1", "t2"}
    later = with_token(expiring, token("t3"), NOW_MS + 1)
    assert set(later.tokens) == {"t1", "t3"}
    assert set(without_token(later, "t1").tokens) == {"t3"}


Change = Callable[[AccessBook], AccessBook]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda it: with_role(it, "a b", [GRANT], replaces=False), "role name 'a b' must begin"),
        (lambda it: with_role(it, "", [GRANT], replaces=False), "role name '' must begin"),
        (
            lambda it: with_role(it, "admin", [GRANT], replaces=False),
            "is built in and cannot be ch",
        ),
        (lambda it: with_role(it, "r", [GRANT], replaces=False), "there is a role 'r' already"),
        (lambda it: with_role(it, "x", [GRANT], replaces=True), "there is no role 'x'"),
        (lambda it: with_role(it, "x", [], replaces=False), "has 1 to 200 grants, not 0"),
        (lambda it: with_role(it, "x", [GRANT] * 201, replaces=False), "grants, not 201"),
        (lambda it: with_role(it, "x", ["no"], replaces=False), "is not ACTION:KIND:PATTERN"),
        (lambda it: without_role(it, "admin"), "is built in and cannot be dropped"),
        (lambda it: without_role(it, "x"), "there is no role 'x'; `tidemark auth role list`"),
        (lambda it: without_role(it, "r"), "is held by ann; give them other roles first"),
        (lambda it: with_user(it, "-", [], replaces=False), "user name '-' must begin"),
        (lambda it: with_user(it, "x" * 129, [], replaces=False), "at most 128"),
        (lambda it: with_user(it, "ann", [], replaces=False), "there is a user 'ann' already"),
        (lambda it: with_user(it, "x", [], replaces=True), "there is no user 'x'"),
        (lambda it: with_user(it, "x", ["y"], replaces=False), "no role 'y'; there are admin, obs"),
        (lambda it: with_user(it, "x", ["r"] * 51, replaces=False), "51 roles; a user has at most"),
        (lambda it: without_user(it, "x"), "there is no user 'x'"),
        (lambda it: with_token(it, token("t", "x"), NOW_MS), "there is no user 'x'"),
        (lambda it: with_token(it, token("t", note="n" * 201), NOW_MS), "201 characters; at most"),
        (lambda it: with_token(it, token("t", expires_ms=1), NOW_MS), "would have expired already"),
        (lambda it: without_token(it, "x"), "there is no token of id 'x'"),
        (lambda it: without_user(it, "root"), "nobody would be left who may administer"),
        (lambda it: with_user(it, "root", ["r"], replaces=True), "nobody would be left who may"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_what_to_do(
    book: AccessBook, change: Change, why: str
) -> None:
    with pytest.raises(Refused, match=re.escape(why)) as refused:
        change(book)
    assert refused.value.refusal.code is StreamingCode.INVALID_ARGUMENT


def test_the_last_administrator_may_go_when_another_one_is_there(book: AccessBook) -> None:
    both = with_user(book, "eve", ["admin"], replaces=False)
    assert without_user(both, "root").admins() == ["eve"]
    # Before there is one, as in a new broker, nothing needs to be kept.
    assert without_user(AccessBook({"a": User("a", ())}), "a").users == {}


def test_a_role_that_makes_the_only_administrator_keeps_its_right(book: AccessBook) -> None:
    own = with_role(book, "ops", ["admin:cluster:*"], replaces=False)
    own = with_user(own, "root", ["ops"], replaces=True)
    with pytest.raises(Refused, match="nobody would be left"):
        with_role(own, "ops", [GRANT], replaces=True)


def test_numbers_of_users_roles_and_tokens_are_bounded(
    book: AccessBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_changes, "USERS_MAX", 2)
    monkeypatch.setattr(book_changes, "ROLES_MAX", 1)
    monkeypatch.setattr(book_changes, "TOKENS_MAX", 1)
    with pytest.raises(Refused, match="there are 2 users, which is the most"):
        with_user(book, "bob", [], replaces=False)
    with pytest.raises(Refused, match="there are 1 roles"):
        with_role(book, "w", [GRANT], replaces=False)
    with pytest.raises(Refused, match="there are 1 tokens; revoke some first"):
        with_token(book, token("t2"), NOW_MS)


def test_many_holders_of_a_role_are_not_all_named(book: AccessBook) -> None:
    users = {f"u{it:02}": User(f"u{it:02}", ("r",)) for it in range(12)}
    crowded = AccessBook({**book.users, **users}, book.roles)
    with pytest.raises(Refused, match=r"ann, u00, .*, u08 and others; give"):
        without_role(crowded, "r")
