"""Decides about switches of the log, on the coordinator."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching.founded_place import founded_elsewhere
from broker.app.switching.target_check import unreachable
from broker.core.cluster.wal_alter import SEGMENTED, AlterRefusal, Impossible
from broker.edge.rpc.log_altering import AlterState
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import NodeId
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings
from broker.wal.kafka.kafka_url import BadWalUrl, checked_wal

Check = Callable[[str], Awaitable[AlterRefusal | None]]
"""Why the log cannot be switched to a place now, which the state of the switch does not tell."""
Elsewhere = Callable[[], Awaitable[AlterRefusal | None]]
"""Why it is not known here where the log is of a cluster that never switched."""


async def not_elsewhere() -> AlterRefusal | None:
    """The default: it is."""
    return None


class StoredAltering:
    """Implements `edge.rpc.log_altering.LogAltering` over the metadata."""

    def __init__(
        self, places: StoredPlaces, check: Check, elsewhere: Elsewhere = not_elsewhere
    ) -> None:
        self._places, self._check, self._elsewhere = places, check, elsewhere

    async def begin(self, target: str, *, leaves_history: bool) -> None:
        """See LogAltering."""
        try:
            checked_wal(target)
        except BadWalUrl as error:
            raise invalid_argument(str(error)) from error
        with _told():
            # First: what is refused anyway needs no Kafka that answers.
            refused = await self._misplaced()
            refused = refused or await self._places.refusal(target)
            refused = refused or older_nodes(await self._places.older_nodes())
            refused = refused or await self._check(target)
            if refused is None:
                decided = await self._places.begin(target, leaves_history=leaves_history)
                refused = decided if isinstance(decided, AlterRefusal) else None
        if refused is not None:
            raise invalid_argument(refused.cause)

    async def abort(self) -> None:
        """See LogAltering."""
        with _told():
            decided = await self._places.abort()
        if isinstance(decided, AlterRefusal):
            raise invalid_argument(decided.cause)

    async def state(self) -> AlterState:
        """See LogAltering."""
        with _told():
            found = await self._places.progress()
            misplaced = await self._misplaced()
        if misplaced is not None:
            raise invalid_argument(misplaced.cause)
        return AlterState(self._places.founded, found.alter, found.channels)

    async def _misplaced(self) -> AlterRefusal | None:
        # After the first switch the metadata says where the log is.
        return None if await self._places.alter() is not None else await self._elsewhere()


def stored_altering(settings: Settings, store: MetaStore, *, alone: bool) -> StoredAltering:
    """That of a process with these settings, over the metadata of its cluster.

    `alone`: no node is another process.
    """

    async def check(target: str) -> AlterRefusal | None:
        if settings.meta and not alone and target == SEGMENTED:
            return several_hosts()
        return await unreachable(settings, target)

    places = StoredPlaces(store, settings.wal)
    return StoredAltering(places, check, partial(founded_elsewhere, settings, store))


def older_nodes(nodes: Sequence[NodeId]) -> AlterRefusal | None:
    """The refusal where some node knows no switches."""
    if not nodes:
        return None
    names = ", ".join(map(str, nodes))
    cause = (
        f"nodes of an older release are in the cluster ({names}), which would look for the log"
        " where it was: update them, and restart those that registered before"
    )
    return AlterRefusal(Impossible.OLDER_NODE, cause)


def several_hosts() -> AlterRefusal:
    """The refusal where hosts may have folders of their own, and segment files have one."""
    cause = (
        "the metadata is in etcd, so that nodes may run on several hosts, and segment files are on"
        " one: stop all processes, run `tidemark serve` alone on the data folder from which the"
        " cluster was founded, and switch the log there"
    )
    return AlterRefusal(Impossible.SEVERAL_HOSTS, cause)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except MetaError as error:
        raise Refused(StreamingCode.INNER, str(error)) from error
