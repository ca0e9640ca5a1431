"""The client a program holds: `async with connect("127.0.0.1:19531") as log:`.

It hands each call to the part that does it, after one check that it may be used at all.
Next: broker/client/staging.py
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio.lowlevel
from anyio.abc import TaskGroup

from broker.client.append.appends import Appends
from broker.client.append.batch_producer import Gathering
from broker.client.append.outbox import SendLimits
from broker.client.batch import MessageBatch
from broker.client.cluster.admin import ActorInfo, Admin, ChannelInfo, Health
from broker.client.cluster.broadcast import Broadcasts
from broker.client.cluster.cluster_view import ClusterView
from broker.client.cluster.collections import Collections
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import Targets, together
from broker.client.errors import ClosedClient, ForkedClient
from broker.client.message import Batch
from broker.client.net.deadlines import Deadlines
from broker.client.net.network import Network
from broker.client.net.owners import Owners
from broker.client.read.batch_start import BatchStart, BatchUntil, plan_batches
from broker.client.read.batch_subscription import Only
from broker.client.read.deliveries import Source
from broker.client.read.row_scanner import RowForm, RowScanner, schema_of_targets
from broker.client.read.scanner import BatchScanner, Scanner
from broker.client.read.start import ReadOptions, Start, Until, plan
from broker.client.staging import Staging
from broker.client.timekeeping import Timekeeping
from broker.client.txn.batch_commits import BatchCommits
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, VChannelName

NO_PROPERTIES: Mapping[str, str] = {}


class Client(Staging, Timekeeping):
    """A durable log broker, seen from a program. Made by `connect`; for one event loop.

    A target is the name of a collection or of a channel. Every method raises ForkedClient in a
    forked process, ClosedClient after the end, and otherwise what `errors` has.
    """

    def __init__(
        self,
        network: Network,
        tasks: TaskGroup,
        deadlines: Deadlines,
        sending: tuple[SendLimits, Gathering],
        *,
        resend: bool,
    ) -> None:
        collections = Collections(
            network.coordinator, deadline_s=deadlines.call_s, dropped=self._forget
        )
        appends = Appends(network, tasks, *sending, resend=resend)
        commits = BatchCommits(network.coordinator, deadline_s=deadlines.call_s)
        Staging.__init__(self, appends, Targets(collections), deadlines, commits)
        self._network = network
        self._tasks = tasks
        self._pid = os.getpid()
        self._closed = False
        coordinator = network.coordinator
        owners = Owners(network, deadline_s=deadlines.call_s)
        Timekeeping.__init__(self, coordinator, owners, tasks, deadline_s=deadlines.call_s)
        self._offsets = Offsets(owners, deadline_s=deadlines.call_s)
        self._admin = Admin(coordinator, deadline_s=deadlines.call_s)
        self._tree = ClusterView(network, self._admin, deadline_s=deadlines.call_s)
        self._collections = collections
        self._broadcasts = Broadcasts(coordinator, self._vchannels, deadline_s=deadlines.call_s)

    @property
    def collections(self) -> Collections:
        """Creates, gets, lists and drops collections."""
        self._check_usable()
        return self._collections

    @property
    def broadcast(self) -> Broadcasts:
        """One message on many vchannels, with locks, in one order: `log.broadcast.append`."""
        self._check_usable()
        return self._broadcasts

    # ---- reading --------------------------------------------------------------------------------

    def read(
        self,
        target: str,
        *,
        start: Start | Mapping[str, Start] = "all",
        until: Until | None = None,
        types: Iterable[int] | None = None,
        with_ticks: bool = False,
        ignore_pause: bool = False,
    ) -> Scanner:
        """Batches of messages from a collection, a vchannel, or a whole pchannel.

        `start`: "all" (what the log still holds), "latest" (what is appended after the reader was
        opened), a message id (of one vchannel), ("tick", n), a cut (what comes after it), or a
        mapping from vchannel to these. `until`: None, "now" (what is durable when the reader is
        opened), a cut, or a mapping from vchannel to the first id not to read. `types`: the
        message types to see, None for all.
        `with_ticks`: show time ticks as messages too. `ignore_pause`: begin even while an operator
        holds consumers back.
        """
        wanted = None if types is None else frozenset(int(it) for it in types)
        return self._reader(target, ReadOptions(start, until, wanted, with_ticks, ignore_pause))

    def read_range(self, vchannel: str, start_id: int, end_id: int) -> Scanner:
        """The messages of one vchannel with ids in [start_id, end_id); always ends by itself.

        Raises OutOfRange, at the first step, when the log does not hold the whole range.
        """
        return self._reader(vchannel, ReadOptions(start=start_id, until={vchannel: end_id}))

    def read_batches(
        self,
        target: str | Iterable[str],
        *,
        start: BatchStart = "all",
        until: BatchUntil | None = None,
        types: Iterable[int] = (),
    ) -> BatchScanner:
        """Batches as they lie in the log, from a collection, a pchannel, or some vchannels.

        The fastest way out: nothing is made of single messages before it is asked for. `start`:
        "all", "latest", a message id (of one pchannel), ("tick", n), a cut (what comes after it;
        with OutOfRange or Unrecoverable where retention took some of that).
        `until`: None, "now", a time tick, a cut; with it the read ends by itself, and what was
        asked for is complete. A tick from the future is refused with InvalidArgument. `types`: the
        message types to see, none for all. What came through Milvus's Produce is there as well.
        """
        self._check_usable()
        names = [target] if isinstance(target, str) else list(target)
        only = Only(tuple([int(it) for it in types]))

        async def subscriptions() -> Sequence[Source[MessageBatch]]:
            self._check_usable()
            shards = together([await self._targets.resolve(name) for name in names])
            return await plan_batches(self._network, self._offsets, shards, (start, until), only)

        return BatchScanner(subscriptions, self._tasks)

    def read_arrow(
        self,
        target: str | Iterable[str],
        *,
        columns: Iterable[str] | None = None,
        start: BatchStart = "all",
        until: BatchUntil | None = None,
        schema: Any = None,
    ) -> RowScanner:
        """The rows of a collection of Arrow rows, or of some of its vchannels: RecordBatches.

        Each has the columns asked for, in that order (None: all that the collection has when the
        reader is opened), then `_vchannel`, `_message_id` and `_time_tick`, and so the same schema,
        `await scanner.schema()`. The broker sends no other columns. Rows from before a column was
        added have null in it. What was appended otherwise than as Arrow is no row and left out.

        `start`, `until`: as of `read_batches`. `schema`: the collection's, for who knows it, so
        that nobody has to be asked. Raises BadTarget, at the first step, for a column that is not
        there, and for targets that are not of one collection with a schema.
        """
        self._check_usable()
        names = [target] if isinstance(target, str) else list(target)
        wanted = None if columns is None else list(columns)

        async def form() -> RowForm:
            self._check_usable()
            found = schema or await schema_of_targets(self._collections, names)
            return RowForm(found, wanted)

        async def subscriptions(shape: RowForm) -> Sequence[Source[MessageBatch]]:
            self._check_usable()
            shards = together([await self._targets.resolve(name) for name in names])
            only = Only(rows=True, columns=shape.asked)
            return await plan_batches(self._network, self._offsets, shards, (start, until), only)

        return RowScanner(form, subscriptions, self._tasks)

    def _reader(self, target: str, options: ReadOptions) -> Scanner:
        self._check_usable()

        async def subscriptions() -> Sequence[Source[Batch]]:
            self._check_usable()
            shards = await self._targets.resolve(target)
            return await plan(self._network, self._offsets, shards, options)

        return Scanner(subscriptions, self._tasks)

    # ---- questions ------------------------------------------------------------------------------

    async def resolve(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Each name with its vchannels in shard order. Raises NoSuchCollection."""
        self._check_usable()
        return {name: (await self._targets.resolve(name)).vchannels for name in names}

    async def describe(self, channels: Iterable[str]) -> dict[str, ChannelOffsets]:
        """What each channel holds: `Offsets.describe`."""
        self._check_usable()
        return await self._offsets.describe(channels)

    async def seek(self, channel: str, tick: int) -> MessageId:
        """The first id with a tick not below `tick`: `Offsets.seek`."""
        self._check_usable()
        return await self._offsets.seek(channel, tick)

    async def advance(self, channel: str, from_id: int, until_id: int, bytes_max: int) -> MessageId:
        """How far some bytes reach: `Offsets.advance`."""
        self._check_usable()
        return await self._offsets.advance(channel, from_id, until_id, bytes_max)

    async def get_latest_mvcc_timestamp_if_local(self, vchannel: str) -> int:
        """A tick, closed already, that no message of the vchannel exceeds.

        Who has seen it has seen all that was acknowledged on the vchannel before the call. Local
        means that the server this client is connected to owns the vchannel; NotLocal otherwise.
        """
        self._check_usable()
        return await self._admin.latest_mvcc(vchannel)

    async def wal_name(self) -> str:
        """The kind of log behind the server, in Milvus's words: message ids have its form."""
        return (await self.health()).wal_name

    async def health(self) -> Health:
        """How the server is."""
        self._check_usable()
        return await self._tree.health()

    async def pause_consumption(self) -> None:
        """Consumers that are opened from now on wait to be resumed, but for `ignore_pause`.

        Those that read already go on, and so do producers. It holds on every node, also on those
        that come later, until it is resumed. A bounded read that waits gives up after `give_up_s`.
        """
        await self._pause_consumption(paused=True)

    async def resume_consumption(self) -> None:
        """Let all consumers begin that wait."""
        await self._pause_consumption(paused=False)

    async def streaming_version(self, at_least: int = 0) -> int:
        """The cluster's, raised to `at_least` when it was lower; it never goes back.

        At 0 the channels of the cluster are read-only, and appends wait.
        """
        self._check_usable()
        return await self._admin.streaming_version(at_least)

    async def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        self._check_usable()
        return await self._admin.channels()

    async def actors(self, path: str = "") -> list[ActorInfo]:
        """The live tree of actors, or the part of it from `path` on; sorted by path.

        What `/root/...` is inside another process, that of node 2, is `/node-2/...` here.
        """
        self._check_usable()
        return await self._tree.actors(path)

    async def kill_actor(self, path: str, *, term: int = 0) -> int:
        """Have an actor end as if it had crashed; the term of the incarnation that was killed.

        `term`: that incarnation or none. Only a server that runs with `--allow-chaos` does it:
        Unrecoverable elsewhere. InvalidArgument: nobody lives there; TermMismatch: another
        incarnation does by now; ServerFailed: it waits for its restart.
        """
        self._check_usable()
        return await self._tree.kill(path, term)

    async def _channels_of(self, targets: str | Iterable[str]) -> list[str]:
        """The vchannels of the targets, each once."""
        self._check_usable()
        names = [targets] if isinstance(targets, str) else list(targets)
        return list(together([await self._targets.resolve(name) for name in names]).vchannels)

    async def _pause_consumption(self, *, paused: bool) -> None:
        self._check_usable()
        await self._admin.pause_consumption(paused=paused)

    # ---- the end --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Wait for answers on their way, at most `close_s`, then end everything; always returns.

        Readers end with ClosedClient, and so do appends not sent yet. May be called again.
        """
        if not self._closed:
            self._closed = True
            try:
                await self._appends.finish(self._deadlines.close_s)
            finally:
                self.abort()
        await anyio.lowlevel.checkpoint()

    def abort(self) -> None:
        """End everything now."""
        self._closed = True
        self._tasks.cancel_scope.cancel()
        self._network.close()

    async def _vchannels(self, target: str) -> tuple[VChannelName, ...]:
        self._check_usable()
        return (await self._targets.resolve(target)).vchannels

    def _forget(self, collection: str) -> None:
        self._targets.forget(collection)

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedClient("the client is closed")
        if os.getpid() != self._pid:
            raise ForkedClient(
                f"this client was connected in process {self._pid}; connect again after the fork"
            )
