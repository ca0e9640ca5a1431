"""Grants such as `consume:collection:orders-*`: an action on whatever matches a pattern."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from broker.model.failure import invalid_argument

E = TypeVar("E", bound=StrEnum)

PATTERN_LENGTH_MAX: Final = 255
ANYTHING: Final = "*"


class Action(StrEnum):
    """What may be done."""

    PRODUCE = "produce"
    CONSUME = "consume"
    GROUP = "group"
    DDL = "ddl"
    BROADCAST = "broadcast"
    TXN = "txn"
    ADMIN = "admin"
    CHAOS = "chaos"
    OBSERVE = "observe"


class ResourceKind(StrEnum):
    """On what. A collection stands for its channels, too; a database is a part of its name."""

    COLLECTION = "collection"
    CHANNEL = "channel"
    GROUP = "group"
    CURSOR = "cursor"
    CLUSTER = "cluster"


SEE: Final = frozenset(Action)
"""Who may do anything with a thing may see it."""


class Resource(NamedTuple):
    """A thing that a request names. `collection`: of a channel, the one that it is of, if any.

    `shown`: what a refusal calls it, where the request did not say its name.
    """

    kind: ResourceKind
    name: str
    collection: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """None stands for every action, or every kind. In `pattern`, `*` is any text, `?` a letter."""

    action: Action | None
    kind: ResourceKind | None
    pattern: str

    def __str__(self) -> str:
        return f"{self.action or ANYTHING}:{self.kind or ANYTHING}:{self.pattern}"

    def allows(self, actions: frozenset[Action], resource: Resource) -> bool:
        """Whether it allows one of the actions on the resource."""
        if self.action is not None and self.action not in actions:
            return False
        if self.kind is None or self.kind is resource.kind:
            return matches(self.pattern, resource.name)
        return (
            self.kind is ResourceKind.COLLECTION
            and resource.collection != ""
            and matches(self.pattern, resource.collection)
        )


def parsed_grant(text: str) -> Grant:
    """The grant that is written `ACTION:KIND:PATTERN`. Raises Refused(INVALID_ARGUMENT)."""
    action, _, rest = text.partition(":")
    kind, colon, pattern = rest.partition(":")
    if not colon or not pattern:
        raise invalid_argument(
            f"grant {text[:80]!r} is not ACTION:KIND:PATTERN, such as consume:collection:orders-*"
        )
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise invalid_argument(
            f"the pattern of a grant has {len(pattern)} characters; at most {PATTERN_LENGTH_MAX}"
        )
    return Grant(
        _one_of(Action, "action", action, text), _one_of(ResourceKind, "kind", kind, text), pattern
    )


def _one_of(among: type[E], what: str, name: str, text: str) -> E | None:
    if name == ANYTHING:
        return None
    try:
        return among(name)
    except ValueError:
        known = ", ".join([*among, ANYTHING])
        raise invalid_argument(
            f"grant {text[:80]!r}: {name[:80]!r} is no {what}; use {known}"
        ) from None


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name fits. Its cost is at most the product of both lengths."""
    at = in_name = 0
    star, resume = -1, 0
    while in_name < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, in_name
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[in_name]):
            at, in_name = at + 1, in_name + 1
        elif star >= 0:
            # The last star takes one character more; earlier ones need not change.
            resume += 1
            at, in_name = star + 1, resume
        else:
            return False
    return all(it == "*" for it in pattern[at:])
