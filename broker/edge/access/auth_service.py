"""tidemark.v1.Auth: users, roles and tokens, and who the caller is."""

from collections.abc import Callable, Mapping
from typing import Final

from grpclib.const import Handler

from broker.core.security.access_book import BUILT_IN, AccessBook, Role
from broker.core.security.book_changes import (
    with_role,
    with_token,
    with_user,
    without_role,
    without_token,
    without_user,
)
from broker.core.security.tokens import StoredToken
from broker.edge.access.new_token import new_token
from broker.edge.rpc.access.access import CURRENT
from broker.edge.rpc.access.access_records import AccessRecords
from broker.edge.rpc.middleware import Middleware
from broker.model.failure import invalid_argument
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Auth/"
TTL_MS_MAX: Final = 10 * 366 * 86_400_000


class AuthService:
    """WhoAmI, Show, SetRole, DropRole, SetUser, DropUser, AddToken, RevokeToken."""

    def __init__(self, middleware: Middleware, records: AccessRecords) -> None:
        self._middleware = middleware
        self._gate = middleware.access
        self._records = records

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "WhoAmI": unary(v1.WhoAmIRequest, self.who_am_i),
            SERVICE + "Show": unary(v1.ShowAccessRequest, self.show),
            SERVICE + "SetRole": unary(v1.SetRoleRequest, self.set_role),
            SERVICE + "DropRole": unary(v1.DropRoleRequest, self.drop_role),
            SERVICE + "SetUser": unary(v1.SetUserRequest, self.set_user),
            SERVICE + "DropUser": unary(v1.DropUserRequest, self.drop_user),
            SERVICE + "AddToken": unary(v1.AddTokenRequest, self.add_token),
            SERVICE + "RevokeToken": unary(v1.RevokeTokenRequest, self.revoke_token),
        }

    async def who_am_i(self, _: v1.WhoAmIRequest) -> v1.WhoAmIResponse:
        """The caller, and what the caller may do."""
        principal = CURRENT.get().principal
        if principal is None:
            return v1.WhoAmIResponse()
        book = self._gate.book
        roles = book.roles_of(principal)
        found = [it for it in map(book.role, roles) if it is not None]
        grants = dict.fromkeys([str(grant) for role in found for grant in role.grants])
        return v1.WhoAmIResponse(
            controlled=True,
            user=principal.name,
            proof=principal.origin.name.lower(),
            roles=list(roles),
            grants=list(grants),
            expires_ms=principal.expires_ms,
        )

    async def show(self, _: v1.ShowAccessRequest) -> v1.ShowAccessResponse:
        """Everything, by name; tokens by user and the time they were made."""
        book = await self._records.read()
        roles = sorted(book.roles.values(), key=lambda it: it.name)
        tokens = sorted(book.tokens.values(), key=lambda it: (it.user, it.made_ms, it.id))
        return v1.ShowAccessResponse(
            users=[
                v1.AccessUser(name=name, roles=list(user.roles))
                for name, user in sorted(book.users.items())
            ],
            roles=[_role(it) for it in (*BUILT_IN.values(), *roles)],
            tokens=[_token(it) for it in tokens],
            epoch=book.epoch,
            controlled=self._gate.controls,
        )

    async def set_role(self, request: v1.SetRoleRequest) -> v1.AccessChanged:
        """A new role, or other grants of one."""
        name, grants, replaces = request.name, request.grants, request.replaces
        return await self._change(lambda book: with_role(book, name, grants, replaces=replaces))

    async def drop_role(self, request: v1.DropRoleRequest) -> v1.AccessChanged:
        """Drop a role that nobody has."""
        return await self._change(lambda book: without_role(book, request.name))

    async def set_user(self, request: v1.SetUserRequest) -> v1.AccessChanged:
        """A new user, or other roles of one."""
        name, roles, replaces = request.name, request.roles, request.replaces
        return await self._change(lambda book: with_user(book, name, roles, replaces=replaces))

    async def drop_user(self, request: v1.DropUserRequest) -> v1.AccessChanged:
        """Drop a user, with the user's tokens."""
        return await self._change(lambda book: without_user(book, request.name))

    async def add_token(self, request: v1.AddTokenRequest) -> v1.AddTokenResponse:
        """A new token; its secret is in this answer and nowhere else."""
        if not 0 <= request.ttl_ms <= TTL_MS_MAX:
            raise invalid_argument(
                f"a token for {request.ttl_ms} ms; it may last 1 to {TTL_MS_MAX} ms, or 0 for ever"
            )
        now_ms = self._gate.now_ms()
        expires_ms = now_ms + request.ttl_ms if request.ttl_ms else 0
        text, stored = new_token(request.user, now_ms, expires_ms, request.note)
        await self._change(lambda book: with_token(book, stored, now_ms))
        return v1.AddTokenResponse(token=text, info=_token(stored))

    async def revoke_token(self, request: v1.RevokeTokenRequest) -> v1.AccessChanged:
        """Revoke a token: the streams that it opened end."""
        return await self._change(lambda book: without_token(book, request.id))

    async def _change(self, change: Callable[[AccessBook], AccessBook]) -> v1.AccessChanged:
        after = await self._records.change(change)
        if self._gate.controls and after.epoch > self._gate.book.epoch:
            # Here at once; other processes see it when they look next.
            self._gate.adopt(after)
        return v1.AccessChanged(epoch=after.epoch)


def _role(role: Role) -> v1.AccessRole:
    grants = [str(it) for it in role.grants]
    return v1.AccessRole(name=role.name, grants=grants, built_in=role.name in BUILT_IN)


def _token(token: StoredToken) -> v1.AccessToken:
    return v1.AccessToken(
        id=token.id,
        user=token.user,
        made_ms=token.made_ms,
        expires_ms=token.expires_ms,
        note=token.note,
    )
