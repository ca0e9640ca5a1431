"""The records of users, roles and tokens, below `auth/` in the metadata store.

Every change writes the record `auth/epoch`, too: its revision is the epoch. So one read tells a
process whether it knows the newest book.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.core.security.access_book import AccessBook, Role, User
from broker.core.security.grants import parsed_grant
from broker.core.security.tokens import StoredToken
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import Conflict, MetaError, MetaStore
from broker.ports.meta_writes import all_entries, split_write

PREFIX: Final = "auth/"
EPOCH_KEY: Final = "auth/epoch"
USER_PREFIX: Final = "auth/user/"
ROLE_PREFIX: Final = "auth/role/"
TOKEN_PREFIX: Final = "auth/token/"
RACES_MAX: Final = 8
READ_PAGE: Final = 1000


class StoredAccess:
    """AccessRecords (`broker/edge/rpc/access/access_records.py`)."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def epoch(self) -> int:
        """See AccessRecords."""
        with _translated():
            return await self._epoch()

    async def read(self) -> AccessBook:
        """See AccessRecords."""
        with _translated():
            for _ in range(RACES_MAX):
                epoch = await self._epoch()
                found = await self._read_all()
                # The pages are of one moment only if nobody wrote between them.
                if epoch == await self._epoch():
                    return replace(found, epoch=epoch)
        raise _busy()

    async def change(self, change: Callable[[AccessBook], AccessBook]) -> AccessBook:
        """See AccessRecords."""
        for _ in range(RACES_MAX):
            before = await self.read()
            after = change(before)
            with _translated():
                try:
                    return replace(after, epoch=await self._write(before, after))
                except Conflict as conflict:
                    if conflict.key != EPOCH_KEY:
                        raise
        raise _busy()

    async def _epoch(self) -> int:
        entry = await self._store.get(EPOCH_KEY)
        return 0 if entry is None else entry.revision

    async def _read_all(self) -> AccessBook:
        users: dict[str, User] = {}
        roles: dict[str, Role] = {}
        tokens: dict[str, StoredToken] = {}
        async for key, entry in all_entries(self._store, PREFIX, page=READ_PAGE):
            if key.startswith(USER_PREFIX):
                user = decode_fields(key, entry.value, _user)
                users[user.name] = user
            elif key.startswith(ROLE_PREFIX):
                role = decode_fields(key, entry.value, _role)
                roles[role.name] = role
            elif key.startswith(TOKEN_PREFIX):
                token = decode_fields(key, entry.value, _token)
                tokens[token.id] = token
        return AccessBook(users, roles, tokens)

    async def _write(self, before: AccessBook, after: AccessBook) -> int:
        """Write the difference; the new epoch."""
        old, new = _records(before), _records(after)
        puts = {key: it for key, it in new.items() if old.get(key) != it}
        deletes = [key for key in old if key not in new]
        revision = before.epoch
        mark = encode_fields({})
        # More than one write only for hundreds of tokens of a user who is dropped. What a crash
        # leaves of them proves nothing, because the book refuses a token without a user.
        parts = [*split_write(puts, deletes)] or [({}, [])]
        for some, gone in parts:
            revision = await self._store.write(
                {**some, EPOCH_KEY: mark}, deletes=gone, expect={EPOCH_KEY: revision}
            )
        return revision


def _records(book: AccessBook) -> Mapping[str, bytes]:
    return {
        **{USER_PREFIX + it.name: _encoded_user(it) for it in book.users.values()},
        **{ROLE_PREFIX + it.name: _encoded_role(it) for it in book.roles.values()},
        **{TOKEN_PREFIX + it.id: _encoded_token(it) for it in book.tokens.values()},
    }


def _encoded_user(user: User) -> bytes:
    return encode_fields({"name": user.name, "roles": list(user.roles)})


def _user(fields: dict[str, Any]) -> User:
    return User(str(fields["name"]), tuple(map(str, fields["roles"])))


def _encoded_role(role: Role) -> bytes:
    return encode_fields({"name": role.name, "grants": [str(it) for it in role.grants]})


def _role(fields: dict[str, Any]) -> Role:
    try:
        return Role(str(fields["name"]), tuple([parsed_grant(it) for it in fields["grants"]]))
    except Refused as refused:
        raise ValueError(refused.refusal.cause) from refused


def _encoded_token(token: StoredToken) -> bytes:
    return encode_fields(
        {
            "id": token.id,
            "user": token.user,
            "salt": b64encode(token.salt).decode(),
            "digest": b64encode(token.digest).decode(),
            "made_ms": token.made_ms,
            "expires_ms": token.expires_ms,
            "note": token.note,
        }
    )


def _token(fields: dict[str, Any]) -> StoredToken:
    return StoredToken(
        str(fields["id"]),
        str(fields["user"]),
        b64decode(fields["salt"], validate=True),
        b64decode(fields["digest"], validate=True),
        int(fields["made_ms"]),
        int(fields["expires_ms"]),
        str(fields["note"]),
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Conflict:
        raise
    except MetaError as error:
        raise Refused(StreamingCode.INNER, str(error)) from error


def _busy() -> Refused:
    cause = "users, roles and tokens keep changing; try again"
    return Refused(StreamingCode.RESOURCE_ACQUIRED, cause)
