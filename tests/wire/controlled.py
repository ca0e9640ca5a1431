"""A broker that controls access, with users, and peers that show their tokens."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors import SystemClock
from broker.app.security.book_watch import BookWatch, Sight
from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.book_changes import with_role, with_token, with_user
from broker.edge.access.new_token import new_token
from broker.edge.rpc.access.book_refresh import BookRefresh
from broker.edge.rpc.access.gate import AccessGate
from broker.meta.memory_store import MemoryMetaStore
from tests.wire.small_broker import SmallBroker, small_broker

ADMIN = "root"
SECRET = "0" * 64


@dataclass
class Controlled:
    """What a test holds of it. `tokens`: by user."""

    broker: SmallBroker
    gate: AccessGate
    records: StoredAccess
    tokens: dict[str, str] = field(default_factory=dict)

    def proof(self, user: str) -> dict[str, str]:
        """The metadata of a call of the user; none for ""."""
        return {"authorization": f"Bearer {self.tokens[user]}"} if user else {}

    async def add(self, user: str, *grants: str) -> None:
        """Add a user with these grants, or replace the grants of one; the gate knows it at once."""
        self.gate.adopt(await self.store(user, *grants))

    async def store(self, user: str, *grants: str) -> AccessBook:
        """The same, as another process does it: the gate is not told."""
        text, token = new_token(user, made_ms=1)
        known = user in self.tokens

        def change(book: AccessBook) -> AccessBook:
            roles: Sequence[str] = ["admin"] if user == ADMIN else []
            if grants:
                book = with_role(book, f"of_{user}", grants, replaces=f"of_{user}" in book.roles)
                roles = [f"of_{user}"]
            book = with_user(book, user, roles, replaces=known)
            return book if known else with_token(book, token, 1)

        book = await self.records.change(change)
        self.tokens.setdefault(user, text)
        return book

    def follow(self) -> BookRefresh:
        """Let the gate read the records before it refuses, as a process does."""
        refresh = BookRefresh(self.records, self.gate)
        self.gate.newest = refresh.newest
        return refresh

    def watch(self) -> BookWatch:
        """What follows the records in a process."""
        clock = SystemClock()
        return BookWatch(self.records, self.gate, Sight(clock.monotonic_s, clock.monotonic_s()))


@asynccontextmanager
async def controlled(pchannels: int = 1) -> AsyncIterator[Controlled]:
    """With one user, the administrator."""
    store, gate = MemoryMetaStore(), AccessGate(SystemClock().wall_ms, secret=SECRET)
    async with small_broker(store=store, gate=gate, pchannels=pchannels) as broker:
        found = Controlled(broker, gate, StoredAccess(store))
        await found.add(ADMIN)
        yield found
