"""The `Client`: the everyday calls are its methods, and all other calls are on its attributes.

Next: broker/client/append/appends.py
Next: broker/client/cluster/cuts.py
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from broker.client.access.auth import Auth
from broker.client.append.appends import Appends
from broker.client.append.arrow_batches import split_rows
from broker.client.append.batch_producer import Gathering
from broker.client.append.delivery_properties import DeliverAt, delivery_properties
from broker.client.append.named_partitions import NamedPartitions, check_rows, in_partition
from broker.client.append.outbox import SendLimits
from broker.client.append.outgoing_batch import Ticket
from broker.client.append.prepare import batch_header
from broker.client.batch import AppendedBatch
from broker.client.cluster.admin import Admin
from broker.client.cluster.barrier import NamedBarriers
from broker.client.cluster.broadcast import Broadcasts
from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import NamedCursors
from broker.client.cluster.cuts import Cuts
from broker.client.cluster.measurement import Measuring
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.space_calls import Purges
from broker.client.durability import Durability, level_of
from broker.client.groups.consumer_group import GroupParts, Groups
from broker.client.groups.dead_letters import LetterParts
from broker.client.groups.group_calls import GroupCalls
from broker.client.master.cluster_config import ClusterConfig
from broker.client.master.master import Master
from broker.client.message import NO_PROPERTIES, Appended, Key, Kind, Message, checked_messages
from broker.client.net.deadlines import Deadlines
from broker.client.net.network import Network
from broker.client.net.owners import Owners
from broker.client.read.readers import Readers
from broker.client.txn.atomic import append_atomically
from broker.client.txn.batch_commits import BatchCommits
from broker.client.txn.keepalive import checked_keepalive_ms
from broker.client.txn.stage import Stage, checked_name
from broker.client.txn.staged_batch import KEEPALIVE_S, OneRunApps, StagedBatch
from broker.client.txn.txn import Txn

if TYPE_CHECKING:
    import pyarrow as pa


class Client:
    """A connected client, made by `connect`; for the tasks of one event loop.

        async with connect("127.0.0.1:19531") as log:
            landed = await log.append("trains", b"IC 5 is late", key=b"IC 5")

    A target is the name of a collection or of a channel. A name of nothing raises NoSuchCollection
    or NoSuchVChannel; `NewVChannel` names a vchannel that need not exist. A collection with a
    schema takes rows only: SchemaVersionMismatch for messages. Every method raises ClosedClient
    after `aclose`, ForkedClient in a forked process, and the errors of `broker.client.errors`.
    Parts: `collections`, `cursors`, `barriers`, `broadcast`, `commits` (of staged batches),
    `groups`, `offsets` (positions in channels), `admin` (health, channels, actors), `auth` (users,
    roles, tokens), `config` (live settings, keys of applications) and `master` (timestamps, ids).
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
        coordinator, call_s = network.coordinator, deadlines.call_s
        owners = Owners(network, deadline_s=call_s)
        self._network = network
        self._tasks = tasks
        self._deadlines = deadlines
        self.collections = Collections(coordinator, owners, deadline_s=call_s)
        self._targets = self.collections.targets
        network.on_dropped = self._targets.forget_all
        self.master = Master(coordinator, tasks, self._targets.forget, deadline_s=call_s)
        partitions = NamedPartitions(self.master, self._targets.forget_all)
        self._appends = Appends(network, tasks, *sending, partitions, resend=resend)
        self.offsets = Offsets(owners, deadline_s=call_s)
        self.cursors = NamedCursors(
            coordinator, owners, self._targets, self.offsets, deadline_s=call_s
        )
        self.barriers = NamedBarriers(coordinator, tasks, deadline_s=call_s)
        self.broadcast = Broadcasts(coordinator, self._targets, deadline_s=call_s)
        self.commits = BatchCommits(coordinator, deadline_s=call_s)
        self._batches = OneRunApps(), self.commits
        self.config = ClusterConfig(coordinator, deadline_s=call_s)
        self.admin = Admin(network, deadline_s=call_s)
        self.auth = Auth(coordinator, deadline_s=call_s)
        # Everyday calls of the parts are methods of the client too: `log.cut(...)`.
        readers = Readers(network, tasks, self.offsets, self.collections, self.cursors)
        self.read = readers.read
        self.read_range = readers.read_range
        self.read_batches = readers.read_batches
        self.read_arrow = readers.read_arrow
        cuts = Cuts(coordinator, owners, self._targets, deadline_s=call_s)
        self.cut, self.cut_cluster = cuts.cut, cuts.cut_cluster
        measuring = Measuring(owners, self._targets, deadline_s=call_s)
        self.measure = measuring.measure
        self.purge = Purges(owners, self.collections, deadline_s=call_s).purge
        dead = LetterParts(self.collections, self.cursors, self.admin.channels, readers)
        calls = GroupCalls(owners, call_s), self._targets, self.offsets, measuring, dead
        self.groups = Groups(GroupParts(network, tasks, *calls, self.staged))
        self.group = self.groups.named
        self.barrier, self.cursor = self.barriers.named, self.cursors.named
        self.commit_batch, self.abort_batch = self.commits.commit, self.commits.abort

    async def append(  # noqa: PLR0913 - each is an option of the program, by its name
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message; returns when it would survive a power cut.

            landed = await log.append("trains", b"late", key=b"IC 5", properties={"from": "Ulm"})
            print(landed.vchannel, landed.id, landed.tick)

        In a collection `key` chooses the shard; messages without one take turns. Concurrent appends
        share writes, so keep many in flight; no order among them is promised. A retried append is
        stored once: see `resend` of `connect`. `durability` "os" or "memory" returns sooner and
        promises less: see `Durability`; the result says what the message got. `kind`: what Milvus's
        own messages need, see `Message`.

        `partition` names a partition of the collection, which must have a schema: the row is
        counted in that partition's segments, and the reader gets its id. Without it a row is in
        `_default`.
        Consumer groups get the message at `deliver_at` (a datetime or Unix milliseconds, up to 366
        days ahead), and for `ttl_s` from then on; other readers see it at once, where it lies.

        Raises DeadlineExceeded when it was not written in time, OutcomeUnknown when it may have
        been written, MessageTooLarge, or the server's refusal. UnknownDefinition when there is no
        such partition, BadTarget for a message that can have none.
        """
        # `known` first: to await `resolve` for each message costs more than the look-up.
        within_s = deadline_s or self._deadlines.append_s
        shards = self._targets.known(target) or await self._targets.resolve(target, within_s)
        message = Message(payload, key, properties, **kind)
        if partition is not None or deliver_at is not None or ttl_s is not None:
            times, level = delivery_properties([message], deliver_at, ttl_s), level_of(durability)
            return await self._appends.one_with(partition, times, shards, message, within_s, level)
        return await self._appends.one(shards, message, within_s, level_of(durability))

    async def append_soon(
        self,
        target: str,
        message: Message,
        *,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> Ticket:
        """Queue one message once there is room; `await ticket` returns its result or raises.

        Cancelling a ticket before its batch was sent withdraws the message. See also `append`.
        """
        times = delivery_properties([message], deliver_at, ttl_s)
        within_s = deadline_s or self._deadlines.append_s
        shards = self._targets.known(target) or await self._targets.resolve(target, within_s)
        return await self._appends.soon(shards, message, within_s, level_of(durability), times)

    async def append_batch(  # noqa: PLR0913 - as of `append`
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Append messages as one batch on one vchannel: all of them are stored, or none.

        Ids and ticks are consecutive. Batches take turns over the shards of a collection, so one
        with keys needs the name of a vchannel when there are several. Raises what `append` does,
        BadTarget for keys that do not fit, MessageTooLarge for a batch that must be split.
        `partition`, `deliver_at`, `ttl_s`: see `append`.
        """
        within_s = deadline_s or self._deadlines.append_s
        shards = await self._targets.resolve(target, within_s)
        vchannel = shards.choose_for_batch(target, keyed=keys is not None)
        plain = Message(b"", properties=properties)
        header = batch_header(vchannel, plain, within_s, level_of(durability), raw=shards.raw)
        header = in_partition(header, delivery_properties([plain], deliver_at, ttl_s))
        if partition is not None:
            return await self._appends.batch_into(partition, header, payloads, keys)
        return await self._appends.batch(header, payloads, keys)

    async def append_arrow(  # noqa: PLR0913 - as of `append`
        self,
        target: str,
        rows: "pa.RecordBatch | pa.Table",
        *,
        key: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Append the rows of a `pyarrow` RecordBatch or Table. Needs the extra `arrow`.

        The column `key` (integers, strings or bytes) chooses the shard of each row, as the key of
        `append` does; without it batches take turns. Rows of one shard keep their order. Large
        inputs become several batches, each stored whole or not at all; the results are in the order
        of the rows on each vchannel. Waits for all batches: when some failed, AppendsFailed has
        every result; when all failed, the first error is raised. `partition`, `ttl_s`: see
        `append`; rows cannot be delayed.

        Raises SchemaVersionMismatch, which names every difference, for rows whose columns, types or
        order are not the collection's. BadTarget for a `key` that is not a column or not usable.
        """
        within_s = deadline_s or self._deadlines.append_s
        shards = await self._targets.resolve(target, within_s)
        level, compression = level_of(durability), self._appends.compression
        times = delivery_properties((), None, ttl_s)

        async def append(named: bytes = b"") -> list[AppendedBatch]:
            pieces, named = split_rows(rows, shards, key, compression), named + times
            return await self._appends.rows(pieces, properties, within_s, level, named=named)

        if partition is None:
            return await append()
        return await self._appends.partitions.into(shards.vchannels[0], partition, append)

    async def append_messages(  # noqa: PLR0913 - as of `append`
        self,
        target: str,
        messages: Iterable[Message],
        *,
        atomic: bool = True,
        barrier_time_tick: int = 0,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Append many messages; the results are in the order of the messages.

        Several messages of one vchannel become one transaction: they are read together, at the tick
        in their results, or never; one that expires is retried as a whole until the deadline. There
        is neither atomicity nor order between vchannels. Only inserts and deletes can share a
        transaction, which is limited in size. Up to 4,096 plain messages and 4 MiB of one type are
        stored by one write; others, and those with a `barrier_time_tick`, take a write for the
        begin and one for the commit. With `atomic=False` each message is appended separately.

        `barrier_time_tick`: every message gets a larger tick. A tick that the server has not issued
        yet is waited for, up to the setting `barrier_wait_ms_max`; Unrecoverable for one later.

        Waits for all messages; when any failed, AppendsFailed has the result of each one.
        `partition` (of inserts), `deliver_at`, `ttl_s` (of plain messages): see `append`.
        """
        checked = checked_messages(messages, barrier_time_tick)
        within_s = deadline_s or self._deadlines.append_s
        shards = await self._targets.resolve(target, within_s)
        append = append_atomically if atomic else Appends.many
        times = delivery_properties(checked, deliver_at, ttl_s)
        work = partial(append, self._appends, shards, checked, within_s)
        if partition is None:
            return await work(times)
        check_rows(checked)
        return await self._appends.partitions.into(
            shards.vchannels[0], partition, lambda named: work(named + times)
        )

    async def raw_append(
        self, vchannel: str, message: Message, *, deadline_s: float | None = None
    ) -> Appended:
        """Append one message to exactly this vchannel, whatever its key: Milvus's RawAppend.

        The vchannel need not exist. SchemaVersionMismatch for data of a collection with a schema.
        InvalidArgument for what only the log writes (time tick, begin, commit, rollback).
        """
        shards = self._targets.vchannel(vchannel)
        return await self._appends.one(shards, message, deadline_s or self._deadlines.append_s)

    def txn(
        self, target: str, *, keepalive_s: float | None = None, deadline_s: float | None = None
    ) -> Txn:
        """A transaction on one vchannel: its messages are read together, or never.

            async with log.txn(vchannel, keepalive_s=30) as txn:
                await txn.append(b"both")
                await txn.append(b"or neither")

        Leaving the block commits, an exception rolls back. `target`: a vchannel, or a collection of
        one shard; BadTarget, at the begin, for any other. The transaction expires `keepalive_s`
        after its newest append (None: the server's default, 10 s); InvalidArgument below 1 ms.
        `deadline_s` bounds each step.
        """
        return Txn(
            self._appends,
            partial(self._targets.only_vchannel, target),
            checked_keepalive_ms(keepalive_s),
            deadline_s or self._deadlines.append_s,
        )

    def stage(
        self,
        app: str,
        batch: int,
        part: int,
        attempt: int = 0,
        *,
        run: int = 0,
        deadline_s: float | None = None,
    ) -> Stage:
        """Stage one writer's rows of a batch; they are read once the batch is committed.

            async with log.stage("nightly", batch=7, part=0) as stage:
                await stage.append("flights", b"UA 1", key=b"UA")
                part = await stage.seal()
            await log.commit_batch("nightly", 7, [part])

        `app` names the job, the same in every run; `batch` grows; `part` is the writer's number;
        `attempt` differs each time a part is written again. `run` grows with each run of the job,
        such as its start time: what an earlier run, or a smaller attempt at this part, left staged
        for the same batch is aborted where this one stages, unless a commit has begun for it. With
        `run` 0 it expires instead. `deadline_s` bounds each step. Raises InvalidArgument for an
        `app` that is empty or too long, or a negative number.
        """
        name = checked_name(app, batch, part, attempt, run)
        within_s = deadline_s or self._deadlines.append_s
        return Stage(self._appends, self._targets.resolve, name, within_s)

    def staged(
        self, *, keepalive_s: float = KEEPALIVE_S, deadline_s: float | None = None
    ) -> StagedBatch:
        """A batch on any vchannels that takes effect whole, or not at all.

            async with log.staged() as out:
                await out.append("bills", b"two tickets to Ulm")
                await out.ack(batch)

        Leaving the block commits, an exception aborts. It expires `keepalive_s` after the newest
        message on one of its vchannels; InvalidArgument below 1 ms. `deadline_s` bounds each step.
        """
        within_s = deadline_s or self._deadlines.append_s
        keepalive_ms = checked_keepalive_ms(keepalive_s)
        return StagedBatch(
            self._appends, self._targets.resolve, self._batches, keepalive_ms, within_s
        )

    async def aclose(self) -> None:
        """Wait up to `Deadlines.close_s` for pending appends and calls, then end everything.

        Never fails, and may be called again. Readers end with ClosedClient, and so do appends that
        were not sent. New work is refused at once.
        """
        lifetime = self._network.lifetime
        if not lifetime.closing:
            lifetime.begin_closing()
            until_s = anyio.current_time() + self._deadlines.close_s
            try:
                await self._appends.finish(self._deadlines.close_s)
                with anyio.move_on_after(until_s - anyio.current_time()):
                    await lifetime.until_idle()
            finally:
                self.abort()
        await anyio.lowlevel.checkpoint()

    def abort(self) -> None:
        """End everything now; appends that are not answered end with OutcomeUnknown."""
        self._network.lifetime.close()
        self._tasks.cancel_scope.cancel()
        self._network.close()
