"""The table of calls and roles: what a user of each built-in role may call."""

from collections.abc import Iterable

from broker.core.security.access_book import (
    BUILT_IN,
    AccessBook,
    AccessDecision,
    Origin,
    Principal,
    User,
)
from broker.core.security.grants import SEE, Resource, ResourceKind
from broker.edge.rpc.access.needs import Permission, Requirement, Who
from broker.edge.rpc.access.permissions import PERMISSIONS
from pages.markdown import code, table

ROLES = ("", "reader", "writer", "observer", "admin")
"""The first stands for a user without a role."""
YES, NO, PARTLY, SEEN = "yes", "no", "partly", "what they see"


def permissions() -> str:
    """One row for each call: what it needs, and the answer for each role."""
    assert {*ROLES[1:]} == {*BUILT_IN}, "a built-in role has no column"
    heads = ("call", "needs", *(it or "no role" for it in ROLES))
    rows = [
        (code(path.lstrip("/")), _needs(it), *(_answer(it, role) for role in ROLES))
        for path, it in sorted(PERMISSIONS.items())
    ]
    return table(heads, rows)


def _answer(permission: Permission, role: str) -> str:
    if permission.who in (Who.ANYBODY, Who.PROCESS):
        return YES if permission.who is Who.ANYBODY else NO
    asked = (*permission.needs, *permission.inside)
    found = [_may(role, it) for it in asked]
    if permission.shows:
        return SEEN if all(found) else PARTLY if permission.needs == () else NO
    if all(found):
        return YES
    # What is asked for only at times leaves the rest of the calls allowed.
    always = [may for may, it in zip(found, asked, strict=True) if not it.at_times]
    return PARTLY if any(found) and all(always) else NO


def _may(role: str, need: Requirement) -> bool:
    """Whether the role may do it to something of a collection, or of its own kind."""
    book = AccessBook({"ann": User("ann", (role,) if role else ())})
    kind = need.kinds[-1] if ResourceKind.CHANNEL in need.kinds else need.kinds[0]
    thing = Resource(kind, "name", "name" if kind is ResourceKind.CHANNEL else "")
    ann = Principal("ann", Origin.OTHER)
    return book.decide(ann, need.actions, (thing,)) is AccessDecision.ALLOWED


def _needs(permission: Permission) -> str:
    asked = [*permission.needs, *permission.inside]
    if asked:
        return "; ".join(map(_need, asked))
    return str(permission.who.value)


def _need(need: Requirement) -> str:
    actions = "to see" if need.actions == SEE else " or ".join(sorted(need.actions))
    kinds: Iterable[str] = (
        ("collection",) if ResourceKind.CHANNEL in need.kinds else [str(it) for it in need.kinds]
    )
    of = f" ({need.of})" if need.of else ""
    return f"{actions}: {', '.join(kinds)}{of}"
