"""The client a program holds: `async with connect("127.0.0.1:19531") as log:`.

It hands each call to the part that does it, after one check that it may be used at all.
Next: broker/client/appends.py
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import anyio.lowlevel
from anyio.abc import TaskGroup

from broker.client.admin import ActorInfo, Admin, ChannelInfo, Health
from broker.client.appends import Appends
from broker.client.atomic import append_atomically
from broker.client.barrier import CLUSTER, Barrier, KindName
from broker.client.broadcast import Broadcasts
from broker.client.collections import Collections
from broker.client.deadlines import Deadlines
from broker.client.errors import BadTarget, ClosedClient, ForkedClient, InvalidArgument
from broker.client.message import Appended, Key, Kind, Message
from broker.client.network import Network
from broker.client.offsets import Offsets
from broker.client.outbox import Limits
from broker.client.owners import Owners
from broker.client.scanner import Scanner
from broker.client.start import ReadOptions, Start, Until, plan
from broker.client.subscription import Subscription
from broker.client.targets import Shards, Targets
from broker.client.time_sync import TimeSync
from broker.client.txn import Txn
from broker.model.barrier import BarrierView
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import MessageId, VChannelName

NO_PROPERTIES: Mapping[str, str] = {}


class Client:
    """A durable log broker, seen from a program. Made by `connect`; for one event loop.

    A target is the name of a collection or of a channel. Every method raises ForkedClient in a
    forked process, ClosedClient after the end, and otherwise what `errors` has.
    """

    def __init__(
        self,
        network: Network,
        tasks: TaskGroup,
        deadlines: Deadlines,
        limits: Limits,
        *,
        resend: bool,
    ) -> None:
        self._network = network
        self._tasks = tasks
        self._deadlines = deadlines
        self._pid = os.getpid()
        self._closed = False
        coordinator = network.coordinator
        self._appends = Appends(network, tasks, limits, resend=resend)
        owners = Owners(network, deadline_s=deadlines.call_s)
        self._offsets = Offsets(owners, deadline_s=deadlines.call_s)
        self._admin = Admin(coordinator, deadline_s=deadlines.call_s)
        self._collections = Collections(
            coordinator,
            deadline_s=deadlines.call_s,
            dropped=self._forget,
        )
        self._targets = Targets(self._collections)
        self._time_sync = TimeSync(coordinator, owners, deadline_s=deadlines.call_s)
        self._broadcasts = Broadcasts(coordinator, self._vchannels, deadline_s=deadlines.call_s)

    @property
    def collections(self) -> Collections:
        """Creates, gets, lists and drops collections."""
        self._check_usable()
        return self._collections

    # ---- appending ------------------------------------------------------------------------------

    async def append(
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message; returns when it would survive a power cut.

        Of a collection, `key` chooses the shard; without one rows take turns. Appends that wait at
        the same time share writes, so keep many in flight; their order among each other is not
        promised. Sent at least once: see `resend` of `connect`.

        Raises DeadlineExceeded when it was not written in time, OutcomeUnknown when it may have
        been written, MessageTooLarge, or the server's refusal.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        message = Message(payload, key, properties, **kind)
        return await self._appends.one(shards, message, deadline_s or self._deadlines.append_s)

    async def raw_append(
        self, vchannel: str, message: Message, *, deadline_s: float | None = None
    ) -> Appended:
        """Append one message to exactly this vchannel, whatever its key: Milvus's RawAppend.

        As `append` in all else. Raises InvalidArgument for a message that only the log itself or a
        transaction writes (a time tick, a begin, a commit, a rollback).
        """
        self._check_usable()
        shards = Shards(None, (VChannelName(vchannel),))
        return await self._appends.one(shards, message, deadline_s or self._deadlines.append_s)

    async def append_messages(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        atomic: bool = True,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Append many messages; the results are in the order of the messages.

        Several messages of one vchannel become one transaction: they are read together, at the
        tick in their results, or never. When it expires it is tried again as a whole, until the
        deadline. A single one is appended as it is. Vchannels go on beside each other, and between
        them there is neither atomicity nor order. Only inserts and deletes can share a transaction.

        Always waits for all of them; when any failed it raises AppendsFailed, which has the result
        of every single one: those of one vchannel share their error.

        A transaction is three writes one after the other, and has a limit of size. Without `atomic`
        every message stands for itself, which is the faster way to load much.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        append = append_atomically if atomic else Appends.many
        return await append(self._appends, shards, messages, deadline_s or self._deadlines.append_s)

    async def append_messages_with_option(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        barrier_time_tick: int,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """`append_messages`, each of them with a tick larger than `barrier_time_tick`.

        It must be a tick that was given out: of an acknowledgement, a cut, a barrier. One from the
        future is refused with InvalidArgument; nothing is appended then.
        """
        above = [replace(each, barrier_time_tick=barrier_time_tick) for each in messages]
        return await self.append_messages(target, above, deadline_s=deadline_s)

    def txn(
        self, target: str, *, keepalive_s: float | None = None, deadline_s: float | None = None
    ) -> Txn:
        """A transaction on one vchannel: `async with log.txn("flights_1") as txn`.

        Leaving the block commits, an exception rolls back. `target`: a vchannel, or a collection of
        one shard; BadTarget, at the beginning, for any other. `keepalive_s`: so long after its
        newest append the transaction expires, None for the server's default of 10 s; at least 1 ms,
        else InvalidArgument. `deadline_s` holds for every step by itself.
        """
        self._check_usable()
        keepalive_ms = 0 if keepalive_s is None else int(keepalive_s * 1000)
        if keepalive_s is not None and keepalive_ms <= 0:
            raise InvalidArgument(f"a keepalive of {keepalive_s} s; at least 1 ms is needed")

        async def vchannel() -> VChannelName:
            self._check_usable()
            shards = await self._targets.resolve(target)
            if len(shards.vchannels) != 1:
                raise BadTarget(f"a transaction is on one vchannel; {target} has more, name one")
            return shards.vchannels[0]

        return Txn(self._appends, vchannel, keepalive_ms, deadline_s or self._deadlines.append_s)

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

    def _reader(self, target: str, options: ReadOptions) -> Scanner:
        self._check_usable()

        async def subscriptions() -> Sequence[Subscription]:
            self._check_usable()
            shards = await self._targets.resolve(target)
            return await plan(self._network, self._offsets, shards, options)

        return Scanner(subscriptions, self._tasks)

    # ---- time -----------------------------------------------------------------------------------

    async def cut(self, targets: str | Iterable[str], *, tick: int | None = None) -> Cut:
        """A tick that is closed on all vchannels of the targets, and where it lies on each.

        `read(..., until=cut)` gives exactly the messages with ticks up to it, however many are
        appended meanwhile, and `read(..., start=cut)` all others. Everything acknowledged on these
        vchannels before the call is before the cut. With `tick`: the cut at that one.

        Raises InvalidArgument without targets or for a tick from the future, NoSuchCollection, and
        errors with `retriable` while a pchannel has no owner.
        """
        self._check_usable()
        names = [targets] if isinstance(targets, str) else list(targets)
        resolved = [(await self._targets.resolve(name)).vchannels for name in names]
        channels = dict.fromkeys(channel for shards in resolved for channel in shards)
        return await self._time_sync.cut(list(channels), tick or 0)

    def barrier(self, name: str = CLUSTER, kind: KindName | None = None) -> Barrier:
        """Ticks that hold for several programs, or for all pchannels: join, report, watch.

        "cluster" is the server's own: each tick of it is closed on every pchannel. `kind`: "hard"
        (ticks that every peer has reported; the default), "hard-minimum" or "soft" (the smallest
        of the peers' newest ticks). Kind and name together are one barrier.
        """
        self._check_usable()
        kind = kind or ("soft" if name == CLUSTER else "hard")
        return Barrier(self._time_sync, self._tasks, name, kind)

    async def barriers(self) -> list[BarrierView]:
        """Every barrier there is, soft ones first, by name."""
        self._check_usable()
        return await self._time_sync.barriers()

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
        return await self._offsets.latest_mvcc(vchannel)

    async def wal_name(self) -> str:
        """The kind of log behind the server, in Milvus's words: message ids have its form."""
        return (await self.health()).wal_name

    async def health(self) -> Health:
        """How the server is."""
        self._check_usable()
        return await self._admin.health()

    async def pause_consumption(self) -> None:
        """Consumers that are opened from now on wait to be resumed, but for `ignore_pause`.

        Those that read already go on, and so do producers. It holds for the server that is asked,
        until that is resumed or stopped. A bounded read that waits gives up after `give_up_s`.
        """
        self._check_usable()
        await self._admin.pause_consumption(paused=True)

    async def resume_consumption(self) -> None:
        """Let all consumers begin that wait."""
        self._check_usable()
        await self._admin.pause_consumption(paused=False)

    async def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        self._check_usable()
        return await self._admin.channels()

    async def actors(self, path: str = "") -> list[ActorInfo]:
        """The server's live tree of actors, or the part of it from `path` on; sorted by path."""
        self._check_usable()
        return await self._admin.actors(path)

    async def kill_actor(self, path: str, *, term: int = 0) -> int:
        """Have an actor end as if it had crashed; the term of the incarnation that was killed.

        `term`: that incarnation or none. Only a server that runs with `--allow-chaos` does it:
        Unrecoverable elsewhere. InvalidArgument: nobody lives there; TermMismatch: another
        incarnation does by now; ServerFailed: it waits for its restart.
        """
        self._check_usable()
        return await self._admin.kill(path, term)

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
