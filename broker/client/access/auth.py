"""`log.auth`: users, roles and tokens of a broker that controls access."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from broker.client.cluster.service import ServiceCalls
from broker.client.net.connection import Connection
from schemas.generated.tidemark import v1


@dataclass(frozen=True, slots=True)
class Me:
    """Who calls. `proof`: token, certificate, other or process. `expires_ms` 0: never.

    `controlled` false: the broker asks nobody, and everybody may do everything.
    """

    controlled: bool
    user: str
    proof: str
    roles: tuple[str, ...]
    grants: tuple[str, ...]
    expires_ms: int


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user, and the roles that say what the user may do."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleInfo:
    """A set of grants, each `ACTION:KIND:PATTERN`. `built_in`: it cannot be changed."""

    name: str
    grants: tuple[str, ...]
    built_in: bool


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What the broker tells of a token; Unix milliseconds. `expires_ms` 0: never."""

    id: str
    user: str
    made_ms: int
    expires_ms: int
    note: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token. Its `text` is told once and in no `repr`: keep it where secrets are kept."""

    text: str = field(repr=False)
    info: TokenInfo


@dataclass(frozen=True, slots=True)
class AccessList:
    """All users, roles and tokens. `epoch` grows with each change."""

    users: tuple[UserInfo, ...]
    roles: tuple[RoleInfo, ...]
    tokens: tuple[TokenInfo, ...]
    epoch: int
    controlled: bool


class Auth:
    """Who may do what. A change is durable when its call returns, and in force within a second.

    All calls but `who_am_i` need the role `admin`. InvalidArgument for a name that is taken or not
    known, and for a change that would leave no administrator.
    """

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.Auth", deadline_s=deadline_s)

    async def who_am_i(self) -> Me:
        """Who the broker takes this client for, and what it may do."""
        found = await self._calls.ask("WhoAmI", v1.WhoAmIRequest(), v1.WhoAmIResponse)
        return Me(
            found.controlled,
            found.user,
            found.proof,
            tuple(found.roles),
            tuple(found.grants),
            found.expires_ms,
        )

    async def show(self) -> AccessList:
        """Everything there is, but no secret."""
        found = await self._calls.ask("Show", v1.ShowAccessRequest(), v1.ShowAccessResponse)
        return AccessList(
            tuple([UserInfo(it.name, tuple(it.roles)) for it in found.users]),
            tuple([RoleInfo(it.name, tuple(it.grants), it.built_in) for it in found.roles]),
            tuple([_token(it) for it in found.tokens]),
            found.epoch,
            found.controlled,
        )

    async def add_role(self, name: str, grants: Sequence[str]) -> None:
        """Make a role with these grants, such as `consume:collection:orders-*`."""
        await self._set_role(name, grants, replaces=False)

    async def set_role(self, name: str, grants: Sequence[str]) -> None:
        """Replace the grants of a role, for all who have it."""
        await self._set_role(name, grants, replaces=True)

    async def drop_role(self, name: str) -> None:
        """Drop a role. InvalidArgument while a user has it."""
        await self._calls.ask("DropRole", v1.DropRoleRequest(name=name), v1.AccessChanged)

    async def add_user(self, name: str, roles: Sequence[str] = ()) -> None:
        """Make a user; a token, or a certificate of this name, proves who it is."""
        await self._set_user(name, roles, replaces=False)

    async def set_user(self, name: str, roles: Sequence[str]) -> None:
        """Replace the roles of a user."""
        await self._set_user(name, roles, replaces=True)

    async def drop_user(self, name: str) -> None:
        """Drop a user and revoke the user's tokens."""
        await self._calls.ask("DropUser", v1.DropUserRequest(name=name), v1.AccessChanged)

    async def add_token(
        self, user: str, *, ttl: timedelta | None = None, note: str = ""
    ) -> NewToken:
        """Make a token of a user, which expires after `ttl`; None: never."""
        ttl_ms = 0 if ttl is None else round(ttl.total_seconds() * 1000)
        # Sent as it is, so that the server refuses a time that has passed already.
        request = v1.AddTokenRequest(user=user, ttl_ms=ttl_ms or (0 if ttl is None else -1))
        request.note = note
        found = await self._calls.ask("AddToken", request, v1.AddTokenResponse)
        return NewToken(found.token, _token(found.info or v1.AccessToken()))

    async def revoke_token(self, id: str) -> None:
        """Revoke a token by its id; what it has opened ends within 2 s, on every process."""
        await self._calls.ask("RevokeToken", v1.RevokeTokenRequest(id=id), v1.AccessChanged)

    async def _set_role(self, name: str, grants: Sequence[str], *, replaces: bool) -> None:
        request = v1.SetRoleRequest(name=name, grants=list(grants), replaces=replaces)
        await self._calls.ask("SetRole", request, v1.AccessChanged)

    async def _set_user(self, name: str, roles: Sequence[str], *, replaces: bool) -> None:
        request = v1.SetUserRequest(name=name, roles=list(roles), replaces=replaces)
        await self._calls.ask("SetUser", request, v1.AccessChanged)


def _token(found: v1.AccessToken) -> TokenInfo:
    return TokenInfo(found.id, found.user, found.made_ms, found.expires_ms, found.note)
