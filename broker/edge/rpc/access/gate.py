"""Finds out who calls, and ends calls whose caller may no longer make them.

Nobody is asked for a proof until `adopt` gave it a book.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from broker.core.security.access_book import PROCESS, AccessBook, Origin, Principal
from broker.core.security.tokens import PREFIX, read_token
from broker.edge.rpc.access.access import UNCONTROLLED, Access, nothing_newer
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.edge.rpc.peer_names import ConnectedPeer, peer_subject
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.ports.row_schemas import NoRowSchemas

AUTHORIZATION: Final = "authorization"
BEARER: Final = "bearer "
SECRET: Final = "tidemark-process"
"""Metadata with the secret that the processes of a cluster share."""
HEADER_LENGTH_MAX: Final = 16 * 1024


class OtherTokens(Protocol):
    """Another way to prove who one is, for tokens that do not begin as ours do."""

    def __call__(self, token: str, now_ms: int) -> Principal | None:
        """Who shows this token; None when it proves nothing. It does not wait for anything.

        Raises Refused(NOT_AUTHENTICATED) to tell why.
        """
        ...

    def lost(self, principal: Principal) -> Refusal | None:
        """Why a token that proved this no longer does, whatever the time; None while it does."""
        ...

    async def prepare(self, token: str) -> None:
        """Find out what is needed to check the token. Waits some seconds at most, never raises."""
        ...


class AccessGate:
    """One for a server."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        secret: str = "",
        others: OtherTokens | None = None,
    ) -> None:
        self.names = CollectionNames(NoRowSchemas(), "")
        """The server sets its own."""
        self.newest: Callable[[], Awaitable[None]] = nothing_newer
        """Waited for before somebody is refused: it adopts what was stored meanwhile."""
        self.others = others
        self.now_ms = now_ms
        self._secret = secret.encode()
        self._book: AccessBook | None = None
        self._open: set[Access] = set()

    @property
    def controls(self) -> bool:
        """Whether callers are asked who they are."""
        return self._book is not None

    @property
    def book(self) -> AccessBook:
        """The newest book; empty before the first one."""
        return self._book or AccessBook()

    def adopt(self, book: AccessBook) -> None:
        """Decide by this book from now on, also about the calls that are open."""
        self._book = book
        self.look()

    def look(self) -> None:
        """End the calls whose callers lost what they rely on, or whose tokens have expired."""
        now_ms = self.now_ms()
        for access in list(self._open):
            assert access.principal is not None, "open calls have principals"
            if not self.book.holds_good(access.principal, now_ms):
                access.end(GONE)
            elif (refusal := self._disproved(access.principal) or access.lost()) is not None:
                access.end(refusal)

    def enter(self, metadata: Mapping[str, str | bytes], peer: ConnectedPeer | None) -> Access:
        """What the caller may do; `leave` when the call ends. Raises Refused(NOT_AUTHENTICATED)."""
        if self._book is None:
            return UNCONTROLLED
        access = Access(self._principal(metadata, peer), lambda: self.book, self.names, self.newest)
        self._open.add(access)
        return access

    async def prepare(
        self, metadata: Mapping[str, str | bytes], peer: ConnectedPeer | None = None
    ) -> None:
        """Wait for what `enter` needs; seldom anything is missing, and then for some seconds."""
        if SECRET in metadata:
            return
        header = metadata.get(AUTHORIZATION, "")
        if not isinstance(header, str) or len(header) > HEADER_LENGTH_MAX:
            return
        text = bearer(header)
        if not header:
            name = peer_subject(peer)
            known = not name or self.book.certified(name) is not None
        elif text.startswith(PREFIX):
            # A text without the form of a token is refused without a read.
            given = read_token(text)
            known = given is None or self.book.bearer(given, self.now_ms()) is not None
        else:
            known = True
            if text and self.others is not None:
                await self.others.prepare(text)
        if not known:
            await self.newest()

    def leave(self, access: Access) -> None:
        """The call has ended."""
        self._open.discard(access)

    def _disproved(self, principal: Principal) -> Refusal | None:
        if self.others is None or principal.origin is not Origin.OTHER:
            return None
        return self.others.lost(principal)

    def _principal(
        self, metadata: Mapping[str, str | bytes], peer: ConnectedPeer | None
    ) -> Principal:
        secret = metadata.get(SECRET)
        if secret is not None:
            given = secret if isinstance(secret, bytes) else secret.encode("utf-8", "replace")
            if self._secret and hmac.compare_digest(given, self._secret):
                return PROCESS
            raise Refused(NO_SECRET.code, NO_SECRET.cause)
        header = metadata.get(AUTHORIZATION, "")
        if not isinstance(header, str) or len(header) > HEADER_LENGTH_MAX:
            raise Refused(BAD_TOKEN.code, BAD_TOKEN.cause)
        if header:
            found = self._bearer(header)
            if found is None:
                raise Refused(BAD_TOKEN.code, BAD_TOKEN.cause)
            return found
        name = peer_subject(peer)
        certified = self.book.certified(name) if name else None
        if certified is None:
            raise Refused(NO_PROOF.code, NO_PROOF.cause)
        return certified

    def _bearer(self, header: str) -> Principal | None:
        text = bearer(header)
        if not text:
            return None
        if text.startswith(PREFIX):
            given = read_token(text)
            return None if given is None else self.book.bearer(given, self.now_ms())
        return None if self.others is None else self.others(text, self.now_ms())


def bearer(header: str) -> str:
    """The token in the header; empty when there is none."""
    return header[len(BEARER) :].strip() if header[: len(BEARER)].lower() == BEARER else ""


def _refusal(cause: str) -> Refusal:
    return Refusal(StreamingCode.NOT_AUTHENTICATED, f"not authenticated: {cause}")


NO_PROOF: Final = _refusal(
    "this broker asks who calls; pass a token, by `connect(..., token=...)`, TIDEMARK_TOKEN or"
    " --token-file, or the certificate of a user. `tidemark auth token add USER` makes a token"
)
BAD_TOKEN: Final = _refusal(
    "the token is not known, or it has expired or was revoked; ask an administrator for another"
    " one, who makes it with `tidemark auth token add USER`"
)
GONE: Final = _refusal(
    "the token has expired or was revoked, or its user was dropped, while the call was open"
)
NO_SECRET: Final = _refusal(
    "the secret of the calling process is not that of this cluster; give all its processes one"
    " data folder"
)
