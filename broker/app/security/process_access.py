"""What a process needs to decide who may do what: its gate, and how it follows the records."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from actors import ChildSpec, MailboxSpec, SupervisorSpec, SystemClock
from broker.app.process_errors import CannotStart
from broker.app.security.book_watch import LOOK_S, BookWatch, Sight
from broker.app.security.bootstrap import with_bootstrap
from broker.app.security.cluster_secret import cluster_secret, shared_secret
from broker.app.security.jwt_access import JwtAccess, jwt_access
from broker.app.stores.store_outages import through_outages
from broker.beside import beside
from broker.coordinator.access.stored_access import EPOCH_KEY, StoredAccess
from broker.coordinator.store_changes import Changes
from broker.core.security.access_book import AccessBook
from broker.edge.rpc.access.access_records import AccessRecords
from broker.edge.rpc.access.book_refresh import BookRefresh
from broker.edge.rpc.access.gate import SECRET, AccessGate
from broker.model.failure import Refused
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings

log = structlog.get_logger("tidemark")

ON: Final = "on"


@dataclass(frozen=True, slots=True)
class ProcessAccess:
    """`metadata`: of calls to other processes of the cluster; empty while access is open."""

    gate: AccessGate
    records: AccessRecords
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    sight: Sight | None = None
    jwt: JwtAccess | None = None

    def children(self) -> Sequence[ChildSpec | SupervisorSpec]:
        """The actor that follows the records, if access is controlled."""
        sight = self.sight
        if sight is None:
            return ()

        def watch() -> BookWatch:
            return BookWatch(self.records, self.gate, sight)

        # Looks that are missed need not be made up for.
        others = () if self.jwt is None else (self.jwt.child(),)
        return (ChildSpec("access", watch, MailboxSpec(bound=16)), *others)

    @asynccontextmanager
    async def followed(self, store: MetaStore) -> AsyncIterator[None]:
        """Adopt changes as soon as the store tells of them, while the block runs."""

        async def follow() -> None:
            changes = Changes.of(store, EPOCH_KEY, LOOK_S)
            while True:
                await changes.next()
                await self.gate.newest()

        async with beside(*([] if self.sight is None else [follow])):
            yield

    def warnings(self) -> list[str]:
        """What `health` says of it."""
        found = [] if self.sight is None else self.sight.warnings()
        return found if self.jwt is None else [*found, *self.jwt.ring.warnings()]


async def leading_access(settings: Settings, folder: Path, store: MetaStore) -> ProcessAccess:
    """That of a coordinator or single broker, which leads; waits for a store that is away.

    Raises CannotStart when nobody may administer it, not even by `auth_bootstrap`.
    """
    with _told():
        return await _leading(settings, folder, store)


async def _leading(settings: Settings, folder: Path, store: MetaStore) -> ProcessAccess:
    records = StoredAccess(store)
    book = await through_outages(records.read)
    if settings.auth != ON:
        if book.users:
            log.warning("users are stored, but auth is off: everybody may do everything")
        return ProcessAccess(AccessGate(SystemClock().wall_ms), records)
    file = settings.auth_bootstrap
    if not book.admins() and file is not None:
        change = partial(with_bootstrap, file=file, now_ms=SystemClock().wall_ms())
        book = await through_outages(partial(records.change, change))
    if not book.admins():
        raise CannotStart(
            "auth is on, and no user may administer this broker; make one with its token by"
            f" `tidemark auth bootstrap --data-dir {settings.data_dir}`, or name a file of users"
            " by the setting auth_bootstrap"
        )
    secret = await through_outages(partial(_secret, settings, folder, store))
    return await _controlled(settings, records, book, secret)


async def node_access(settings: Settings, folder: Path, store: MetaStore) -> ProcessAccess:
    """That of a node, which follows the records that its coordinator writes. CannotStart."""
    records = StoredAccess(store)
    if settings.auth != ON:
        return ProcessAccess(AccessGate(SystemClock().wall_ms), records)
    with _told():
        book, secret = await records.read(), await _secret(settings, folder, store)
    return await _controlled(settings, records, book, secret)


async def _secret(settings: Settings, folder: Path, store: MetaStore) -> str:
    return await shared_secret(folder, store) if settings.meta else cluster_secret(folder)


async def _controlled(
    settings: Settings, records: StoredAccess, book: AccessBook, secret: str
) -> ProcessAccess:
    clock = SystemClock()
    jwt = await jwt_access(settings, clock.monotonic_s)
    gate = AccessGate(clock.wall_ms, secret=secret, others=None if jwt is None else jwt.tokens)
    gate.adopt(book)
    if jwt is not None:
        jwt.ring.on_change = gate.look
    gate.newest = BookRefresh(records, gate).newest
    sight = Sight(clock.monotonic_s, clock.monotonic_s())
    return ProcessAccess(gate, records, {SECRET: secret}, sight, jwt)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    except MetaError as error:
        raise CannotStart(str(error)) from error
