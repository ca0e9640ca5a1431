"""Users, roles and tokens at one moment, and the decision whether somebody may do something.

Everything is denied that no grant allows. A book never changes: a change makes another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from broker.core.security.grants import Action, Grant, Resource, ResourceKind
from broker.core.security.tokens import StoredToken, TokenText

REMEMBERED_MAX: Final = 65_536
ADMIN: Final = "admin"


@dataclass(frozen=True, slots=True)
class Role:
    """A named set of grants."""

    name: str
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class User:
    """A name that tokens and certificates are of."""

    name: str
    roles: tuple[str, ...]


def _role(name: str, *grants: Grant) -> Role:
    return Role(name, grants)


def _on_collections(*actions: Action) -> tuple[Grant, ...]:
    return tuple([Grant(it, ResourceKind.COLLECTION, "*") for it in actions])


BUILT_IN: Final[Mapping[str, Role]] = MappingProxyType(
    {
        it.name: it
        for it in (
            _role(ADMIN, Grant(None, None, "*")),
            _role("observer", Grant(Action.OBSERVE, None, "*")),
            _role(
                "reader",
                *_on_collections(Action.CONSUME, Action.OBSERVE),
                Grant(Action.CONSUME, ResourceKind.CURSOR, "*"),
                Grant(Action.GROUP, ResourceKind.GROUP, "*"),
            ),
            _role(
                "writer",
                *_on_collections(Action.PRODUCE, Action.TXN, Action.OBSERVE),
                # A streaming query also commits micro-batches that have no rows.
                Grant(Action.TXN, ResourceKind.CLUSTER, "*"),
            ),
        )
    }
)
"""Roles that exist everywhere and cannot be changed."""


class Origin(Enum):
    """How somebody has proved who they are."""

    TOKEN = auto()
    CERTIFICATE = auto()
    OTHER = auto()
    PROCESS = auto()


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who has proved who they are.

    `roles`: None for those of the user in the book. `token`: the id of ours, or the fingerprint of
    the key that signed a JWT. `expires_ms`: when the proof ends; 0: never.
    """

    name: str
    origin: Origin
    token: str = ""
    roles: tuple[str, ...] | None = None
    expires_ms: int = 0


PROCESS: Final = Principal("another process of the cluster", Origin.PROCESS)


class AccessDecision(Enum):
    """What `AccessBook.decide` answers."""

    ALLOWED = auto()
    DENIED = auto()


@dataclass(frozen=True, slots=True)
class AccessBook:
    """`epoch` grows with each change; what is open is decided again then."""

    users: Mapping[str, User] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    tokens: Mapping[str, StoredToken] = field(default_factory=dict)
    epoch: int = 0
    _known: dict[tuple[tuple[str, ...], frozenset[Action], Resource], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def decide(
        self, principal: Principal, actions: frozenset[Action], resources: Iterable[Resource]
    ) -> AccessDecision:
        """Whether one of the actions is allowed on each of the resources.

        Without resources it is denied: a request that names nothing needs another rule.
        """
        if principal.origin is Origin.PROCESS:
            return AccessDecision.ALLOWED
        roles = self.roles_of(principal)
        named = False
        for resource in resources:
            named = True
            question = (roles, actions, resource)
            known = self._known.get(question)
            if known is None:
                known = self._answer(*question)
                if len(self._known) >= REMEMBERED_MAX:
                    self._known.clear()
                self._known[question] = known
            if not known:
                return AccessDecision.DENIED
        return AccessDecision.ALLOWED if named else AccessDecision.DENIED

    def roles_of(self, principal: Principal) -> tuple[str, ...]:
        """The roles that count for somebody."""
        if principal.roles is not None:
            return principal.roles
        user = self.users.get(principal.name)
        return () if user is None else user.roles

    def role(self, name: str) -> Role | None:
        """A role, built in or stored."""
        return BUILT_IN.get(name) or self.roles.get(name)

    def bearer(self, given: TokenText, now_ms: int) -> Principal | None:
        """Who shows this token; None when it is not known, has expired or was revoked."""
        token = self.tokens.get(given.id)
        # Compared in any case: how long it takes must not tell which ids exist.
        fits = (token or _NOBODYS).fits(given.secret)
        if token is None or not fits or token.expired(now_ms) or token.user not in self.users:
            return None
        return Principal(token.user, Origin.TOKEN, token.id, expires_ms=token.expires_ms)

    def certified(self, name: str) -> Principal | None:
        """Who shows a certificate of this name; None when no user has it."""
        return Principal(name, Origin.CERTIFICATE) if name in self.users else None

    def holds_good(self, principal: Principal, now_ms: int) -> bool:
        """Whether somebody is still who they were when their call began."""
        if 0 < principal.expires_ms <= now_ms:
            return False
        match principal.origin:
            case Origin.TOKEN:
                return principal.token in self.tokens and principal.name in self.users
            case Origin.CERTIFICATE:
                return principal.name in self.users
            case _:
                return True

    def admins(self) -> list[str]:
        """The users who may change this book, by name."""
        may = frozenset({Action.ADMIN})
        # A cluster that is not named: only who may administer every cluster keeps the door open.
        anywhere = (Resource(ResourceKind.CLUSTER, ""),)
        return sorted(
            [
                it
                for it in self.users
                if self.decide(Principal(it, Origin.OTHER), may, anywhere) is AccessDecision.ALLOWED
            ]
        )

    def _answer(
        self, roles: tuple[str, ...], actions: frozenset[Action], resource: Resource
    ) -> bool:
        found = [self.role(it) for it in roles]
        return any(it is not None and _any(it.grants, actions, resource) for it in found)


def _any(grants: Iterable[Grant], actions: frozenset[Action], resource: Resource) -> bool:
    return any(it.allows(actions, resource) for it in grants)


_NOBODYS: Final = StoredToken("", "", b"", b"", 0)
