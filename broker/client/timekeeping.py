"""What a program does with time: cuts, what lies between ticks, barriers, named cursors.

The part of the client that asks which ticks hold, and says how far something is. It hands each
call on, after one check. Next: broker/client/cluster/time_sync.py
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from anyio.abc import TaskGroup

from broker.client.cluster.barrier import CLUSTER, Barrier, KindName
from broker.client.cluster.cursor import Cursor, Cursors
from broker.client.cluster.measure import Measure, MeasureLimits, Measurements
from broker.client.cluster.time_sync import TimeSync
from broker.client.errors import InvalidArgument
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.barrier import BarrierView
from broker.model.cut import Cut
from broker.model.named_cursor import CursorView


class Timekeeping(ABC):
    """The methods of a `Client` about time; see there for what all of them raise."""

    def __init__(
        self, connection: Connection, owners: Owners, tasks: TaskGroup, *, deadline_s: float
    ) -> None:
        self._time_sync = TimeSync(connection, owners, deadline_s=deadline_s)
        self._measuring = Measurements(owners, deadline_s=deadline_s)
        self._cursors = Cursors(connection, deadline_s=deadline_s)
        self._watching = tasks

    async def cut(
        self,
        targets: str | Iterable[str],
        *,
        tick: int | None = None,
        whole_broadcasts: bool = False,
    ) -> Cut:
        """A tick that is closed on all vchannels of the targets, and where it lies on each.

        `read(..., until=cut)` gives exactly the messages with ticks up to it, however many are
        appended meanwhile, and `read(..., start=cut)` all others. Everything acknowledged on these
        vchannels before the call is before the cut. With `tick`: the cut at that one.
        `whole_broadcasts`: of each broadcast all copies on these vchannels are in it, or none, and
        so it is with batches of staged rows; new ones wait for the moment. A broadcast in
        quarantine is taken as it lies.

        Raises InvalidArgument without targets or for a tick from the future, NoSuchCollection, and
        errors with `retriable` while a pchannel has no owner.
        """
        channels = await self._channels_of(targets)
        if not whole_broadcasts:
            return await self._time_sync.cut(channels, tick or 0)
        if tick is not None or not channels:
            raise InvalidArgument("a cut with whole broadcasts has targets, and chooses its tick")
        return await self._time_sync.whole_cut(channels)

    async def measure(
        self,
        targets: str | Iterable[str],
        *,
        after: int,
        until: int,
        rows_max: int = 0,
        bytes_max: int = 0,
    ) -> Measure:
        """How much lies on the vchannels of the targets with ticks in (after, until], and where.

        `.choice` is the largest tick up to which there are at most `rows_max` rows (messages) and
        `bytes_max` stored bytes on all of them together (0: no limit), or the first tick that has
        any: it always goes on. It splits no broadcast, if `until` does not. `.steps[vchannel]` tell
        what lies in between, `.ranges(vchannel, parts)` part a vchannel into equal shares. Counted
        at the owners from what the log knows of its records; a transaction is where its commit is.

        Raises InvalidArgument for an empty span, a tick from the future or no targets.
        """
        channels = await self._channels_of(targets)
        limits = MeasureLimits(rows_max, bytes_max)
        return await self._measuring.measure(channels, (after, until), limits)

    def barrier(self, name: str = CLUSTER, kind: KindName | None = None) -> Barrier:
        """Ticks that hold for several programs, or for all pchannels: join, report, watch.

        "cluster" is the server's own: each tick of it is closed on every pchannel. `kind`: "hard"
        (ticks that every peer has reported; the default), "hard-minimum" or "soft" (the smallest
        of the peers' newest ticks). Kind and name together are one barrier.
        """
        self._check_usable()
        kind = kind or ("soft" if name == CLUSTER else "hard")
        return Barrier(self._time_sync, self._watching, name, kind)

    async def barriers(self) -> list[BarrierView]:
        """Every barrier there is, soft ones first, by name."""
        self._check_usable()
        return await self._time_sync.barriers()

    def cursor(self, name: str) -> Cursor:
        """A position that the server keeps under this name: `move`, `get`, `drop`."""
        self._check_usable()
        return Cursor(self._cursors, self._channels_of, name)

    async def cursors(self) -> list[CursorView]:
        """Every cursor there is, by name, with how far it is behind."""
        self._check_usable()
        return await self._cursors.list()

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise what a call on a client that is closed or forked raises."""

    @abstractmethod
    async def _channels_of(self, targets: str | Iterable[str]) -> Sequence[str]:
        """The vchannels of the targets, each once."""
