"""Changes of an `AccessBook`: each gives the book after it, or raises Refused."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker.core.security.access_book import BUILT_IN, AccessBook, Role, User
from broker.core.security.grants import parsed_grant
from broker.core.security.tokens import StoredToken
from broker.model.failure import invalid_argument

USERS_MAX: Final = 10_000
ROLES_MAX: Final = 1_000
TOKENS_MAX: Final = 10_000
GRANTS_MAX: Final = 200
ROLES_OF_USER_MAX: Final = 50
NOTE_LENGTH_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


def with_role(book: AccessBook, name: str, grants: Sequence[str], *, replaces: bool) -> AccessBook:
    """A book with this role. `replaces`: it must exist, and its grants are replaced."""
    _check_name("role", name)
    if name in BUILT_IN:
        raise invalid_argument(f"role {name!r} is built in and cannot be changed; choose another")
    _check_new("role", name, book.roles, ROLES_MAX, replaces=replaces)
    if not 0 < len(grants) <= GRANTS_MAX:
        raise invalid_argument(f"a role has 1 to {GRANTS_MAX} grants, not {len(grants)}")
    role = Role(name, tuple(map(parsed_grant, dict.fromkeys(grants))))
    return _with_admin(book, replace(book, roles={**book.roles, name: role}))


def without_role(book: AccessBook, name: str) -> AccessBook:
    """A book without the role, which no user may have."""
    if name in BUILT_IN:
        raise invalid_argument(f"role {name!r} is built in and cannot be dropped")
    _check_known("role", name, book.roles)
    holders = sorted([it.name for it in book.users.values() if name in it.roles])
    if holders:
        raise invalid_argument(
            f"role {name!r} is held by {_some(holders)}; give them other roles first"
        )
    return replace(book, roles={key: it for key, it in book.roles.items() if key != name})


def with_user(book: AccessBook, name: str, roles: Sequence[str], *, replaces: bool) -> AccessBook:
    """A book with this user. `replaces`: it must exist, and its roles are replaced."""
    _check_name("user", name)
    _check_new("user", name, book.users, USERS_MAX, replaces=replaces)
    if len(roles) > ROLES_OF_USER_MAX:
        raise invalid_argument(f"{len(roles)} roles; a user has at most {ROLES_OF_USER_MAX}")
    for role in roles:
        if book.role(role) is None:
            known = _some(sorted([*BUILT_IN, *book.roles]))
            raise invalid_argument(f"there is no role {role[:80]!r}; there are {known}")
    user = User(name, tuple(dict.fromkeys(roles)))
    return _with_admin(book, replace(book, users={**book.users, name: user}))


def without_user(book: AccessBook, name: str) -> AccessBook:
    """A book without the user, and without the user's tokens."""
    _check_known("user", name, book.users)
    users = {key: it for key, it in book.users.items() if key != name}
    tokens = {key: it for key, it in book.tokens.items() if it.user != name}
    return _with_admin(book, replace(book, users=users, tokens=tokens))


def with_token(book: AccessBook, token: StoredToken, now_ms: int) -> AccessBook:
    """A book with a new token; those that have expired are forgotten."""
    _check_known("user", token.user, book.users)
    if len(token.note) > NOTE_LENGTH_MAX:
        raise invalid_argument(
            f"the note has {len(token.note)} characters; at most {NOTE_LENGTH_MAX}"
        )
    if token.expired(now_ms):
        raise invalid_argument("the token would have expired already; choose a later time")
    living = {key: it for key, it in book.tokens.items() if not it.expired(now_ms)}
    if len(living) >= TOKENS_MAX:
        raise invalid_argument(f"there are {TOKENS_MAX} tokens; revoke some first")
    return replace(book, tokens={**living, token.id: token})


def without_token(book: AccessBook, id: str) -> AccessBook:
    """A book in which this token is revoked."""
    if id not in book.tokens:
        raise invalid_argument(
            f"there is no token of id {id[:80]!r}; `tidemark auth token list` shows them"
        )
    return replace(book, tokens={key: it for key, it in book.tokens.items() if key != id})


def _with_admin(before: AccessBook, after: AccessBook) -> AccessBook:
    """The book after a change. Refused when it would leave nobody who can change it again."""
    if before.admins() and not after.admins():
        raise invalid_argument(
            "nobody would be left who may administer this broker; give another user the role"
            " 'admin' first"
        )
    return after


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid_argument(
            f"{what} name {name[:80]!r} must begin with a letter, digit or '_' and have at most 128"
            " letters, digits, '_', '.', '@' and '-'"
        )


def _check_new(
    what: str, name: str, known: Mapping[str, object], most: int, *, replaces: bool
) -> None:
    if replaces:
        _check_known(what, name, known)
    elif name in known:
        raise invalid_argument(
            f"there is a {what} {name!r} already; set it, or choose another name"
        )
    elif len(known) >= most:
        raise invalid_argument(f"there are {most} {what}s, which is the most; drop some first")


def _check_known(what: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise invalid_argument(
            f"there is no {what} {name[:80]!r}; `tidemark auth {what} list` shows them"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" and others" if len(names) > 10 else "")
