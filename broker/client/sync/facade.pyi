"""The blocking client, as types: made by `python scripts/gen_sync.py`, do not edit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import pyarrow as pa

from broker.client.access.auth import AccessList, Me, NewToken
from broker.client.append.batch_producer import Gathering
from broker.client.append.delivery_properties import DeliverAt
from broker.client.append.outbox import SendLimits
from broker.client.batch import AppendedBatch, MessageBatch
from broker.client.cluster.admin import Channels
from broker.client.cluster.barrier import KindName
from broker.client.cluster.broadcast import Broadcasted, BroadcastInfo, BroadcastOptions, LockInfo
from broker.client.cluster.cursor import FirstIds, ResetTo
from broker.client.cluster.cursor_calls import Positions
from broker.client.cluster.given_rows import GivenRows
from broker.client.cluster.kept_limits import CleanupOptions
from broker.client.cluster.measurement import Measurement
from broker.client.cluster.server_admin import ActorInfo, ChannelInfo, Health, ServerTraffic
from broker.client.cluster.space_calls import Purged
from broker.client.cluster.switching.wal_calls import WalStatus
from broker.client.durability import Durability
from broker.client.errors import TidemarkError
from broker.client.groups.dead_letters import DeadLetter
from broker.client.groups.group_calls import GroupStart
from broker.client.groups.modes import Mode, OrderedBy
from broker.client.master.change_calls import ChangeOptions, Defined
from broker.client.master.cluster_config import ConfigChanged, ConfigReport
from broker.client.master.collection_calls import CollectionDescription, KeptOptions
from broker.client.master.part_calls import IndexDescription
from broker.client.master.segment_calls import SegmentAssignment, SegmentLoad, SegmentRequest
from broker.client.message import Appended, Batch, Key, Kind, Message, Received
from broker.client.net.deadlines import Deadlines
from broker.client.read.batch_start import BatchUntil
from broker.client.read.start import Until
from broker.client.start_time import Time
from broker.client.txn.batch_commits import AppCommits, BatchCommitted
from broker.client.txn.stage import StagedPart
from broker.core.master.component_health import Component
from broker.model.barrier import BarrierView
from broker.model.broadcast import ResourceKey
from broker.model.channel import ChannelOffsets
from broker.model.collection import Collection
from broker.model.cut import Cut
from broker.model.groups.consumer_group import GroupLag, GroupView
from broker.model.ids import CollectionId, MessageId, PartitionId, TimeTick, VChannelName
from broker.model.master.clash import Clash
from broker.model.master.live_config import ConfigChange, ConfigEntry
from broker.model.master.segment_meta import SegmentMeta
from broker.model.master.tenancy import ProxyMember, Tenant
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TimeTicksView
from broker.model.named_cursor import CursorView
from broker.transport.tls import Tls

class Admin:
    """`log.admin`. Every call has a deadline and raises what `broker.client.errors` has.

    `known`: what `channels` has just answered, of a caller that makes several calls; they then need
    not ask for it again to find the nodes."""
    def abort_wal(self) -> WalStatus:
        """Turn a switch back, and remove the copy.

        Raises InvalidArgument when there is none, or pchannels append to the target already."""
        ...
    def actors(self, path: str = "", *, known: Channels = None) -> list[ActorInfo]:
        """The live tree of actors, or the part of it from `path` on; sorted by path."""
        ...
    def alter_wal(self, target: str, *, leave_history: bool = False) -> WalStatus:
        """Begin to switch the log of the cluster to `target`, while it serves.

            log.admin.alter_wal("kafka://10.0.0.5:9092/tidemark?replication=3")

        `target`: the URL of a Kafka, or "" for segment files. Returns at once; `wal_status` tells
        how far it is. Ids and ticks go on, and readers, cursors and groups notice nothing. The old
        log is removed in the end, unless `leave_history`. Raises InvalidArgument, with nothing
        changed, when a switch is under way, the log is there already, or the Kafka is away."""
        ...
    def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        ...
    def get_latest_mvcc_timestamp_if_local(self, vchannel: str) -> int:
        """A closed tick that no message of the vchannel exceeds.

        A reader that has seen this tick has seen everything that was acknowledged on the vchannel
        before the call. Raises NotLocal unless the server this client is connected to owns the
        vchannel: Milvus's GetLatestMVCCTimestampIfLocal."""
        ...
    def health(self, *, known: Channels = None) -> Health:
        """The health of the server, with the troubles, damages and warnings of all its nodes."""
        ...
    def kill_actor(self, path: str, *, term: int = 0) -> int:
        """End an actor as if it had crashed; returns the term of the incarnation it killed.

        `term`: kill that incarnation only. Raises Unrecoverable unless the server runs with
        `--allow-chaos`; InvalidArgument when there is no actor of this path; TermMismatch when
        another incarnation lives there; ServerFailed while the actor waits for its restart."""
        ...
    def pause_consumption(self) -> None:
        """Make consumers that are opened from now on wait until consumption is resumed.

        Readers that are open continue, and so do producers. The pause holds on every node, also on
        nodes that join later. A reader opened with `ignore_pause` does not wait; a bounded read
        that waits fails after `Deadlines.silence_s`."""
        ...
    def resume_consumption(self) -> None:
        """Let all waiting consumers start."""
        ...
    def streaming_version(self, at_least: int = 0) -> int:
        """The streaming version of the cluster, raised to `at_least` if it was lower.

        It never decreases. At 0 the channels of the cluster are read-only and appends wait."""
        ...
    def traffic(self, *, known: Channels = None) -> list[ServerTraffic]:
        """What each process of the cluster has counted of each vchannel, since it started.

        A process that does not answer is left out. A vchannel that moved is counted by each
        process that has served it."""
        ...
    def wal_name(self) -> str:
        """The kind of log behind the server, in Milvus's words; it decides the form of ids."""
        ...
    def wal_status(self) -> WalStatus:
        """Where the log is, and how far the newest switch of it is."""
        ...

class Auth:
    """Who may do what. A change is durable when its call returns, and in force within a second.

    All calls but `who_am_i` need the role `admin`. InvalidArgument for a name that is taken or not
    known, and for a change that would leave no administrator."""
    def add_role(self, name: str, grants: Sequence[str]) -> None:
        """Make a role with these grants, such as `consume:collection:orders-*`."""
        ...
    def add_token(self, user: str, *, ttl: timedelta | None = None, note: str = "") -> NewToken:
        """Make a token of a user, which expires after `ttl`; None: never."""
        ...
    def add_user(self, name: str, roles: Sequence[str] = ...) -> None:
        """Make a user; a token, or a certificate of this name, proves who it is."""
        ...
    def drop_role(self, name: str) -> None:
        """Drop a role. InvalidArgument while a user has it."""
        ...
    def drop_user(self, name: str) -> None:
        """Drop a user and revoke the user's tokens."""
        ...
    def revoke_token(self, id: str) -> None:
        """Revoke a token by its id; what it has opened ends within 2 s, on every process."""
        ...
    def set_role(self, name: str, grants: Sequence[str]) -> None:
        """Replace the grants of a role, for all who have it."""
        ...
    def set_user(self, name: str, roles: Sequence[str]) -> None:
        """Replace the roles of a user."""
        ...
    def show(self) -> AccessList:
        """Everything there is, but no secret."""
        ...
    def who_am_i(self) -> Me:
        """Who the broker takes this client for, and what it may do."""
        ...

class Barrier:
    """The barrier of one name and kind; `log.barrier(name)` makes it without asking the server."""

    name: str
    def join(self, peer: str, *, lease_s: float = ..., interval_ms: int = 0) -> Peer:
        """Take part as `peer` while an `with` block lasts.

        The client renews the lease. When the program has been gone for `lease_s`, the barrier
        removes the peer and no longer waits for it. A later join under the same name takes the
        place over. `interval_ms`: how far apart the ticks of a new soft barrier are."""
        ...
    def watch(self, after: int = 0) -> Watch:
        """The ticks that pass the barrier above `after`; 0 starts with the newest. See `Watch`."""
        ...

class BatchCommits:
    """`log.commits`. Every call has a deadline and raises what `broker.client.errors` has."""
    def abort(self, parts: Iterable[StagedPart], *, deadline_s: float | None = None) -> int:
        """Abort what these parts hold; returns how many transactions were rolled back.

        What is committed, or being committed, stays. What cannot be reached now expires."""
        ...
    def commit(
        self, app: str, batch: int, parts: Iterable[StagedPart], *, deadline_s: float = ...
    ) -> BatchCommitted:
        """Make everything in these parts visible, or nothing; exactly once.

        When the app has already committed this batch or a later one, the result is that commit,
        with `already` set, and what the parts hold is aborted. So a batch that was staged again
        after a crash is simply committed again. Without parts an empty batch is committed.

        Raises OutcomeUnknown at the deadline, or when the client is closed meanwhile: it may still
        take effect; call again with the same parts. TransactionExpired or InvalidTransactionState
        when a part has ended before: nothing is committed; stage the batch again. InvalidArgument
        for parts of another batch. Unrecoverable when a damaged log has lost some of it."""
        ...
    def list(self) -> list[AppCommits]:
        """The commits of every app that the broker remembers, sorted by name."""
        ...

class BatchScanner:
    """What `Client.read_batches` returns: batches as they are stored."""
    def close(self) -> None:
        """End the streams; raises nothing, and may be called again."""
        ...
    @property
    def closed_tick(self) -> TimeTick:
        """No message with a tick up to it is still to come on any of the vchannels; 0: unknown.

        Batches that were read ahead count as still to come until a step has returned them. So a
        program that has processed all it got may resume behind this tick later."""
        ...
    def commit(self, *, deadline_s: float = ...) -> None:
        """Commit all that the program has got to the cursor that the reader was started from.

        Durable on return: the next reader of the cursor begins behind it. Of `messages()` it is
        everything up to the message that was returned last. What was read ahead is not included, so
        the position never goes beyond what the program has got. It moves shards without messages
        too. May be repeated.

        Raises BadCommit for a reader that was not started from a cursor, NoSuchCursor when that was
        dropped, CursorWasReset, DeadlineExceeded."""
        ...
    def done(self) -> None:
        """Return once nothing more is read: at its end, at an error, or after `close`.

        The last batches may not have been taken yet."""
        ...
    @property
    def error(self) -> TidemarkError | None:
        """The error that ended the read; None while it runs, at its end, and after `close`."""
        ...
    def messages(self) -> Iterator[Received]:
        """The same, message by message; a cancelled step loses none."""
        ...
    def open(self) -> None:
        """Fix the start positions and begin to read ahead; no-op when open already."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> MessageBatch: ...

class Broadcasts:
    """`log.broadcast`. Every call has a deadline and raises what `broker.client.errors` has."""
    def ack(self, message: Received, *, deadline_s: float | None = None) -> None:
        """Acknowledge that this copy of a broadcast was processed; durable on return.

        May be repeated, and may be late. Raises BadTarget for a message that is not a broadcast."""
        ...
    def append(
        self,
        targets: str | Iterable[str],
        payload: bytes,
        *,
        keys: Iterable[ResourceKey] = ...,
        idempotency_key: str | None = None,
        deadline_s: float = ...,
        **options: Unpack[BroadcastOptions],
    ) -> Broadcasted:
        """Append one message to every vchannel of the targets; returns when all copies are durable.

        Once recorded, the broadcast reaches all of them whatever fails, each at a tick of its own.
        Broadcasts with a key in common, unless both share it, are carried out one after the other
        and lie in that order on every vchannel they have in common. With `ack_sync_up` each copy
        must also have been processed.

        `idempotency_key`: a second call with the same key and content is the same broadcast and
        returns the same answer, while the broker remembers it (the newest 8,192 of the last day).
        Without one the client makes up a key, so that its own retries are not a second broadcast.

        Raises OutcomeUnknown at the deadline, or when the client is closed meanwhile: it may still
        take effect; call again with the same key. Unrecoverable when it is too large, or cannot
        continue until an operator decides. SchemaVersionMismatch for data that is broadcast to a
        collection with a schema. InvalidArgument for a target that is not a vchannel,
        one named twice, or none."""
        ...
    def block_until_resource_key_ack_all(
        self, key: ResourceKey, *, deadline_s: float = ...
    ) -> None:
        """Wait until each broadcast that holds `key` now is acknowledged on all its vchannels.

        One that is skipped meanwhile counts as acknowledged."""
        ...
    def block_until_resource_key_ack_once(
        self, key: ResourceKey, *, deadline_s: float = ...
    ) -> None:
        """Wait until each broadcast that holds `key` now is acknowledged on some vchannel.

        One that is skipped meanwhile counts as acknowledged."""
        ...
    def locks(self) -> list[LockInfo]:
        """Which broadcast holds which keys, and which wait, in the order of arrival."""
        ...
    def retry(self, name: str) -> None:
        """Try again what failed of a broadcast in quarantine. Raises InvalidArgument."""
        ...
    def skip(self, name: str) -> None:
        """End a broadcast in quarantine as it is. Raises InvalidArgument."""
        ...
    def list(self, *, quarantine_only: bool = False) -> list[BroadcastInfo]:
        """The broadcasts that are not finished; first those that wait for their keys."""
        ...

class CachedAllocator:
    """Numbers that no other caller gets, each larger than all that this allocator gave before.

    `ids = log.master.ids` or `log.master.timestamps`, then `first = ids.alloc(10)`. For any
    number of tasks; requests are served in their order. A request that the cached batch cannot
    serve makes one fetch for all that wait, of at least `batch` numbers."""

    fetches: int
    def alloc(self, count: int = 1) -> int:
        """The first of `count` consecutive numbers, which are the caller's.

        1 <= count <= 65,536; BadTarget for others. Waits only while a batch is fetched. When that
        fails, raises its error, in all requests that wait. A cancelled request takes nothing, or
        leaves a gap. ServerFailed, to be retried, when 10,000 requests wait already."""
        ...
    def forget(self) -> None:
        """Drop the cached batch: the next request fetches a new one."""
        ...

class Client:
    """A connected client, made by `connect`; for the tasks of one event loop.

        with connect("127.0.0.1:19531") as log:
            landed = log.append("trains", b"IC 5 is late", key=b"IC 5")

    A target is the name of a collection or of a channel. A name of nothing raises NoSuchCollection
    or NoSuchVChannel; `NewVChannel` names a vchannel that need not exist. A collection with a
    schema takes rows only: SchemaVersionMismatch for messages. Every method raises ClosedClient
    after `close`, ForkedClient in a forked process, and the errors of `broker.client.errors`.
    Parts: `collections`, `cursors`, `barriers`, `broadcast`, `commits` (of staged batches),
    `groups`, `offsets` (positions in channels), `admin` (health, channels, actors), `auth` (users,
    roles, tokens), `config` (live settings, keys of applications) and `master` (timestamps, ids)."""

    collections: Collections
    master: Master
    offsets: Offsets
    cursors: NamedCursors
    barriers: NamedBarriers
    broadcast: Broadcasts
    commits: BatchCommits
    config: ClusterConfig
    admin: Admin
    auth: Auth
    groups: Groups
    def abort(self) -> None:
        """End everything now; appends that are not answered end with OutcomeUnknown."""
        ...
    def abort_batch(self, parts: Iterable[StagedPart], *, deadline_s: float | None = None) -> int:
        """Abort what these parts hold; returns how many transactions were rolled back.

        What is committed, or being committed, stays. What cannot be reached now expires."""
        ...
    def append(
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message; returns when it would survive a power cut.

            landed = log.append("trains", b"late", key=b"IC 5", properties={"from": "Ulm"})
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
        such partition, BadTarget for a message that can have none."""
        ...
    def append_arrow(
        self,
        target: str,
        rows: pa.RecordBatch | pa.Table,
        *,
        key: str | None = None,
        properties: Mapping[str, str] = ...,
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
        order are not the collection's. BadTarget for a `key` that is not a column or not usable."""
        ...
    def append_batch(
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = ...,
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
        `partition`, `deliver_at`, `ttl_s`: see `append`."""
        ...
    def append_messages(
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
        `partition` (of inserts), `deliver_at`, `ttl_s` (of plain messages): see `append`."""
        ...
    def append_soon(
        self,
        target: str,
        message: Message,
        *,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> Ticket:
        """Queue one message once there is room; `ticket` returns its result or raises.

        Cancelling a ticket before its batch was sent withdraws the message. See also `append`."""
        ...
    def barrier(self, name: str = ..., kind: KindName | None = None) -> Barrier:
        """A barrier that programs join, report to and watch; no request is made yet.

        "cluster" is the server's own: each of its ticks is closed on every pchannel. `kind`: "hard"
        (ticks that every peer has reported; the default), "hard-minimum" or "soft" (the smallest of
        the peers' newest ticks). The same name with another kind is another barrier."""
        ...
    def close(self) -> None:
        """Wait up to `Deadlines.close_s` for pending appends, then end everything."""
        ...
    def commit_batch(
        self, app: str, batch: int, parts: Iterable[StagedPart], *, deadline_s: float = ...
    ) -> BatchCommitted:
        """Make everything in these parts visible, or nothing; exactly once.

        When the app has already committed this batch or a later one, the result is that commit,
        with `already` set, and what the parts hold is aborted. So a batch that was staged again
        after a crash is simply committed again. Without parts an empty batch is committed.

        Raises OutcomeUnknown at the deadline, or when the client is closed meanwhile: it may still
        take effect; call again with the same parts. TransactionExpired or InvalidTransactionState
        when a part has ended before: nothing is committed; stage the batch again. InvalidArgument
        for parts of another batch. Unrecoverable when a damaged log has lost some of it."""
        ...
    def cursor(self, name: str) -> Cursor:
        """The positions that the server keeps under this name; no request is made yet."""
        ...
    def cut(
        self,
        targets: str | Iterable[str],
        *,
        tick: int | None = None,
        whole_broadcasts: bool = False,
    ) -> Cut:
        """A tick that is closed on all vchannels of the targets: one consistent place to stop.

            cut = log.cut("flights")
            process(log.read("flights", until=cut))  # then `start=cut` for the rest

        Everything acknowledged on these vchannels before the call is inside. `tick`: take the cut
        at this tick. `whole_broadcasts`: the cut has, of each broadcast and each staged batch, all
        of it on these vchannels or nothing; new ones wait while it is taken. A broadcast in
        quarantine is not waited for.

        Raises InvalidArgument without targets or for a tick from the future, NoSuchCollection, and
        retriable errors while a pchannel has no owner."""
        ...
    def group(
        self, name: str, *, mode: Mode | None = None, by: OrderedBy | None = None
    ) -> ConsumerGroup:
        """The consumer group of this name: members share the messages of a collection.

            with log.group("workers").join("trains") as member:
                for batch in member:
                    batch.ack()

        It need not exist. `mode` "ordered": messages come in order, `by` "vchannel" to one member
        of a vchannel at a time, by "key" to one member of a key. The mode counts when the group is
        created; a group that exists must have it, unless it is left out."""
        ...
    def measure(
        self,
        targets: str | Iterable[str],
        *,
        after: int,
        until: int,
        rows_max: int = 0,
        bytes_max: int = 0,
    ) -> Measurement:
        """Count what lies on the targets with ticks in (after, until], without reading it.

        `.choice` is the largest tick up to which there are at most `rows_max` rows (messages) and
        `bytes_max` stored bytes on all of them together (0: no limit), or the first tick that has
        any. It splits no broadcast, if `until` does not. `.steps[vchannel]`: where the rows lie;
        `.ranges(vchannel, parts)`: a vchannel in about equal shares. A transaction is counted where
        its commit is. Raises InvalidArgument for an empty span, a tick from the future, no targets."""
        ...
    def purge(
        self,
        target: str,
        *,
        upto: int | Time | None = None,
        before_id: int | None = None,
        database: str = "",
    ) -> list[Purged]:
        """Remove the oldest messages of a collection or a vchannel, for good.

            cut = log.cut("flights")
            log.purge("flights", upto=cut.tick)

        `upto`: a tick, which must be closed; or a time: messages from before it. `before_id`:
        messages with a smaller id, of a vchannel or a collection of one shard. Durable when it
        returns; readers then begin behind it, and one that asks for what is gone gets
        Unrecoverable. Definitions, groups and later messages stay. The disk gets the space back
        within a few `retention_check_s`.

        All vchannels are asked first. Raises ResourceAcquired, with nothing purged, while a reader,
        a group, a named cursor, an open transaction or a staged batch needs some of it;
        InvalidArgument for what is not closed or not written yet; NoSuchCollection; BadTarget.
        Purging again, after an error, completes what was done in part."""
        ...
    def raw_append(
        self, vchannel: str, message: Message, *, deadline_s: float | None = None
    ) -> Appended:
        """Append one message to exactly this vchannel, whatever its key: Milvus's RawAppend.

        The vchannel need not exist. SchemaVersionMismatch for data of a collection with a schema.
        InvalidArgument for what only the log writes (time tick, begin, commit, rollback)."""
        ...
    def read(
        self,
        target: str,
        *,
        start: str
        | int
        | tuple[Literal["tick"], int]
        | tuple[Literal["time"], Time]
        | datetime
        | Cut
        | Cursor
        | Mapping[
            str,
            str
            | int
            | tuple[Literal["tick"], int]
            | tuple[Literal["time"], Time]
            | datetime
            | Cut
            | Cursor,
        ] = "all",
        until: Until | None = None,
        types: Iterable[int] | None = None,
        with_ticks: bool = False,
        ignore_pause: bool = False,
    ) -> Scanner:
        """Read messages of a collection, a vchannel, or a whole pchannel.

            for batch in log.read("trains", start="all", until="now"):
                for message in batch.messages:
                    print(message.payload)

        `start`: "all" (what the log holds), "latest" (what is appended after the reader was
        opened), a message id (of one vchannel), ("tick", n), a datetime or ("time", t) (messages of
        that time on; without a zone it is local), a cut (what comes after it), or a mapping from
        vchannel to these. Or `log.cursor(name)`, or just another name: what is not yet committed to
        that cursor, which is made at "all" if there is none. BadTarget for a misspelt "latest".
        OutOfRange where retention removed messages behind an id, a tick, a cut or the cursor.

        `until`: None (never ends), "now" (what is durable when the reader is opened), a cut, or a
        mapping from vchannel to the first id not to read. `types`: the message types to see, None
        for all that programs append. `with_ticks`: yield time ticks as messages too.
        `ignore_pause`: start even while an operator has paused consumption."""
        ...
    def read_arrow(
        self,
        target: str | Iterable[str],
        *,
        columns: Iterable[str] | None = None,
        start: str
        | int
        | tuple[Literal["tick"], int]
        | tuple[Literal["time"], Time]
        | datetime
        | Cut
        | Cursor = "all",
        until: BatchUntil | None = None,
        schema: pa.Schema | None = None,
    ) -> RowScanner:
        """Read the Arrow rows of a collection, or of some of its vchannels, as RecordBatches.

        Each has the `columns` in that order (None: all of the collection), then `_vchannel`,
        `_message_id` and `_time_tick`; `scanner.schema()` is the schema of all. The broker
        sends no other columns. Rows from before a column was added have null in it. Messages that
        were not appended as Arrow are left out.

        `start`, `until`: as for `read_batches`. `schema`: the collection's, if known, to save a
        request. Raises BadTarget, at the first step, for a column that does not exist and for
        targets that are not of one collection with a schema."""
        ...
    def read_batches(
        self,
        target: str | Iterable[str],
        *,
        start: str
        | int
        | tuple[Literal["tick"], int]
        | tuple[Literal["time"], Time]
        | datetime
        | Cut
        | Cursor = "all",
        until: BatchUntil | None = None,
        types: Iterable[int] = ...,
        ignore_pause: bool = False,
    ) -> BatchScanner:
        """Read batches as they lie in the log, of a collection, a pchannel, or some vchannels.

        The fastest way to read: single messages are made only when asked for. `start`: "all",
        "latest", a message id (of one pchannel), ("tick", n), a datetime or ("time", t), a cut
        (what comes after it), or a cursor or its name, as for `read`; OutOfRange or Unrecoverable
        where retention removed messages behind an id, a tick, a cut or a cursor. `until`: None,
        "now", a time tick, or a cut; the read then ends and is complete. InvalidArgument for a
        tick from the future. `types`: the message types to see, none for all that programs
        append. `ignore_pause`: start even while an operator has paused consumption."""
        ...
    def read_range(self, vchannel: str, start_id: int, end_id: int) -> Scanner:
        """Read the messages of one vchannel with ids in [start_id, end_id), or raise OutOfRange."""
        ...
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

            with log.stage("nightly", batch=7, part=0) as stage:
                stage.append("flights", b"UA 1", key=b"UA")
                part = stage.seal()
            log.commit_batch("nightly", 7, [part])

        `app` names the job, the same in every run; `batch` grows; `part` is the writer's number;
        `attempt` differs each time a part is written again. `run` grows with each run of the job,
        such as its start time: what an earlier run, or a smaller attempt at this part, left staged
        for the same batch is aborted where this one stages, unless a commit has begun for it. With
        `run` 0 it expires instead. `deadline_s` bounds each step. Raises InvalidArgument for an
        `app` that is empty or too long, or a negative number."""
        ...
    def staged(self, *, keepalive_s: float = ..., deadline_s: float | None = None) -> StagedBatch:
        """A batch on any vchannels that takes effect whole, or not at all.

            with log.staged() as out:
                out.append("bills", b"two tickets to Ulm")
                out.ack(batch)

        Leaving the block commits, an exception aborts. It expires `keepalive_s` after the newest
        message on one of its vchannels; InvalidArgument below 1 ms. `deadline_s` bounds each step."""
        ...
    def txn(
        self, target: str, *, keepalive_s: float | None = None, deadline_s: float | None = None
    ) -> Txn:
        """A transaction on one vchannel: its messages are read together, or never.

            with log.txn(vchannel, keepalive_s=30) as txn:
                txn.append(b"both")
                txn.append(b"or neither")

        Leaving the block commits, an exception rolls back. `target`: a vchannel, or a collection of
        one shard; BadTarget, at the begin, for any other. The transaction expires `keepalive_s`
        after its newest append (None: the server's default, 10 s); InvalidArgument below 1 ms.
        `deadline_s` bounds each step."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class ClusterConfig:
    """`log.config`. Every call has a deadline and raises what `broker.client.errors` has.

    A key is a path such as "app/colour", in any case; "." counts as "/", and a first "/" may stand
    there. A key of one part is a setting of Tidemark, one of several parts is free: a value of up
    to 64 KiB, 10,000 entries and 3 MiB in all. No release gives keys below "app/" a meaning."""
    def apply(self, changes: Iterable[ConfigChange]) -> ConfigChanged:
        """Apply all changes or none; the error names everything that is wrong.

        OutcomeUnknown when the answer was lost and the changes expect revisions; changes without
        are repeated until the deadline."""
        ...
    def delete(self, key: str, *, expected_revision: int | None = None) -> ConfigChanged:
        """Delete one entry; a setting returns to what each process was started with."""
        ...
    def get(self, keys: Sequence[str]) -> list[ConfigEntry]:
        """The entries of these keys, in this order. Raises NoSuchConfigKey when one is missing."""
        ...
    def get_by_prefix(self, prefix: str = "/") -> list[ConfigEntry]:
        """The entries whose key begins with this text, by key: "/ma" finds "/master/address"."""
        ...
    def load(self, path: str | Path) -> ConfigChanged:
        """Set what a YAML file, or every *.yaml of a folder, says: all of it or nothing.

        Keys are lower-cased, "." and nesting become "/"; lists, and maps within lists, are stored
        as JSON, null as "". Raises BadConfigFile, or the refusal of the server; both name the file
        and the line."""
        ...
    def set(self, key: str, value: str, *, expected_revision: int | None = None) -> ConfigChanged:
        """Set one entry; a setting is in effect in all reached processes when this returns.

        `expected_revision`: the one that the entry must have, 0 for none. Raises InvalidArgument
        for a bad key or value, SettingNeedsRestart for a setting that is not live, ConfigConflict."""
        ...
    def settings(self) -> ConfigReport:
        """Every setting that may change live: its value at the start, stored, and in force."""
        ...

class Collections:
    """`log.collections`. Every call has a deadline and raises what `broker.client.errors` has."""
    def add_columns(self, name: str, columns: pa.Schema, *, database: str = "") -> Collection:
        """Add nullable columns at the end of a collection's schema: its next version.

        Older rows have null in these columns, and writers of older versions may continue. Columns
        that the collection has already, with the same type, are skipped, so the call may be
        repeated. Raises NoSuchCollection; InvalidArgument for a collection without a schema, for
        a column that is not nullable, and for one that exists with another type."""
        ...
    def alter(
        self, name: str, *, database: str = "", **options: Unpack[CleanupOptions]
    ) -> Collection:
        """Change what each vchannel of a collection keeps.

            log.collections.alter("flights", retention_ms=7 * 86_400_000)

        `retention_ms`: messages that are older are removed, 1,000 to a hundred years;
        `retention_bytes`: the oldest ones are removed while newer ones have as many bytes, 65,536
        to 2**60; -1: no limit. In force within 2 s. What is removed is gone as by `log.purge`, but
        messages that open readers, groups, cursors and transactions need stay until
        `hold_bytes_max` is reached.

            log.collections.alter("prices", cleanup="compact", tombstone_ms=3_600_000)

        `cleanup="compact"`: in the background all but the newest message of each key is removed;
        "delete": only what retention removes. A message with a key and an empty payload is a
        tombstone: it deletes the key, and is removed `tombstone_ms` after what it deletes is gone
        (a day, unless told otherwise). What is younger than `compaction_lag_ms` (0) is left alone.
        Messages without a key stay. A collection with a schema cannot be compacted: rows have no
        keys.

        Raises NoSuchCollection; InvalidArgument for another limit, 0 among them, and for none."""
        ...
    def create(
        self,
        name: str,
        *,
        shards: int = 1,
        schema: pa.Schema | None = None,
        exist_ok: bool = False,
        database: str = "",
        **options: Unpack[CleanupOptions],
    ) -> Collection:
        """Create a collection with one vchannel for each shard, on the least loaded pchannels.

        `database` "" is the default one, in every call; in another one `log.append` and `log.read`
        take the vchannels of the collection, not its name.

        `retention_ms`, `retention_bytes`, `cleanup`, `compaction_lag_ms` and `tombstone_ms`: what
        each vchannel keeps, see `alter`.

        With a `schema` the collection takes Arrow rows of these columns: see `Client.append_arrow`.
        Raises AlreadyExists when the name is taken; with `exist_ok` only when that collection has
        another number of shards or other columns, which the error names. Columns of an earlier
        version of its schema are no difference, nor is a limit that is not named. Raises
        InvalidArgument for a name or a limit that is not allowed, and for column types that a
        collection cannot have; Unrecoverable when the broker has no pyarrow."""
        ...
    def drop(self, name: str, *, database: str = "") -> None:
        """Forget the collection. Raises NoSuchCollection."""
        ...
    def each(self, *, database: str = "") -> Iterator[Collection]:
        """All collections of a database, sorted by name, fetched in pages as they are taken.

        One that is created or dropped meanwhile may be missing. Raises UnknownDefinition for an
        unknown database."""
        ...
    def get(self, name: str, *, database: str = "") -> Collection:
        """The collection of this name. Raises NoSuchCollection."""
        ...
    def resolve(self, names: Iterable[str]) -> dict[str, tuple[VChannelName, ...]]:
        """Each name with its vchannels in shard order; a channel is its own only vchannel.

        Raises NoSuchCollection."""
        ...
    def schema(self, name: str) -> pa.Schema | None:
        """The newest schema of a collection's rows; None for a collection of messages."""
        ...
    def list(self, *, database: str = "") -> list[Collection]:
        """All collections of a database, sorted by name; see `each`."""
        ...

class ConsumerGroup:
    """A group of this name on each vchannel of a target, which is a collection or a vchannel.

        with log.group("workers").join("trains") as member:
            for batch in member:
                for message in batch.messages:
                    print(message.payload)
                batch.ack()

    Every call has a deadline and raises what `broker.client.errors` has."""

    name: str
    def alter(
        self, target: str, *, lease_s: float | None = None, deliveries_max: int | None = None
    ) -> list[GroupView]:
        """Give the group other leases (None: as they are) and another limit (None: no limit).

        Without a limit, messages on their way to the dead letters are delivered again. Raises
        ResourceAcquired while it has members, NoSuchGroup, and InvalidArgument as `create`."""
        ...
    def create(
        self,
        target: str,
        *,
        start: GroupStart = "all",
        lease_s: float = ...,
        deliveries_max: int | None = None,
        exist_ok: bool = False,
    ) -> list[GroupView]:
        """Create the group on each vchannel; one that was created in part is completed.

        `start`: "all", "latest", ("tick", n), a datetime or ("time", t). `lease_s`: how long a
        member has what it gets. `deliveries_max`: a message that was delivered so often, 2 to 1,000
        times, and never acknowledged goes to the dead letters, see `dead`. Raises AlreadyExists
        when it is on all vchannels already, unless `exist_ok`, and InvalidArgument for a bad name,
        lease or limit, or a tick from the future."""
        ...
    def dead(self, *, most: int | None = None) -> list[DeadLetter]:
        """The dead letters of groups of this name, whatever they read; oldest first per vchannel.

        They are messages of the collection `<name>.dead`, which anyone may read in batches. `most`:
        so many at the most; None: all, in memory. Raises NoSuchCollection for a group without
        `deliveries_max`."""
        ...
    def describe(self, target: str) -> list[GroupView]:
        """Floor, acknowledged ranges and members on each vchannel. Raises NoSuchGroup."""
        ...
    def describe_on(self, vchannels: Sequence[str]) -> list[GroupView]:
        """The same for vchannels by their names, of one or of several collections."""
        ...
    def drop(self, target: str) -> None:
        """Drop the group. Raises ResourceAcquired while it has members, NoSuchGroup."""
        ...
    def join(
        self,
        target: str,
        *,
        start: GroupStart = "all",
        lease_s: float = ...,
        member: str = "",
        prefetch_bytes: int = ...,
        deliveries_max: int | None = None,
    ) -> GroupMember:
        """A member: messages come to it, each to one member of the group at a time.

        A group that does not exist is created at `start`, as by `create`, with leases of `lease_s`
        and `deliveries_max`; a group that exists keeps its own. `prefetch_bytes`: how much of each
        vchannel it takes before its program asks. Leases begin when messages are sent, so what
        waits here must be processed within them, too: prefetch less when messages take long.
        `member`: a name for people. Messages that are not acknowledged when a lease ends, or the
        member leaves, are delivered again."""
        ...
    def lag(self, target: str) -> dict[str, GroupLag]:
        """How much lies above the floor of each vchannel. Raises NoSuchGroup."""
        ...
    def redrive(self, target: str) -> int:
        """Append the dead letters of this target to it again; how many.

        Those of earlier calls are left out: the group `redrive.<target>` on the dead letters knows
        them. So are those of earlier calls for one of its vchannels by name, and of one vchannel
        those of earlier calls for its collection; two such calls at once may append a letter twice.
        Each is appended once, whatever fails: call it again then. Raises as `dead`, and
        NoSuchVChannel for letters of a target that was dropped and made again: these are left, and
        hold the log back until the group is sought past them. The error says whether all others are
        appended; if another call holds some, it comes after 75 s without a new one, and more."""
        ...
    def seek(self, target: str, start: GroupStart) -> list[GroupView]:
        """Set the group to another place; what was acknowledged above it is delivered again.

        Raises ResourceAcquired while it has members, NoSuchGroup."""
        ...

class Cursor:
    """The cursor of one name; `log.cursor(name)` makes it without asking the server.

        reader = log.read("flights", start=log.cursor("billing"))
        for batch in reader:
            ...  # process the batch
            log.cursor("billing").commit(batch)

    The server keeps a position for each vchannel: nothing is cached here, and two programs that use
    one name share it."""

    name: str
    def commit(self, batch: Any, *, deadline_s: float = ...) -> None:
        """Record that a batch is processed: one of a reader that was started from this cursor.

        Batches may be committed in any order and more than once. The position of a vchannel moves
        to the end of the last batch before the first one that is not committed, and is durable on
        return; so a batch that is never committed is read again after a restart, with all behind
        it. Batches without messages need no commit.

        Raises BadCommit for anything else than such a batch, and when more than 65,536 runs of
        batches are committed behind one that is not; CursorWasReset, NoSuchCursor when it was
        dropped, DeadlineExceeded. After an error of the connection commit again."""
        ...
    def drop(self) -> None:
        """Forget the cursor. Raises NoSuchCursor."""
        ...
    def get(self, *, measured: bool = True) -> CursorView:
        """Where the cursor is on each vchannel, and how far that is behind. Raises NoSuchCursor.

        `measured=False` leaves out the lag in messages and bytes, for which the owners of the
        vchannels are asked."""
        ...
    def move(
        self, tick: int, targets: str | Iterable[str] = ..., *, deadline_s: float = ...
    ) -> CursorView:
        """Record that everything up to `tick` on all the targets is processed; durable on return.

        For a tick that is closed on all of them: of a cut, a barrier, or `scanner.closed_tick`. The
        first move creates the cursor and has to name its targets; a later move that names targets
        replaces them. Moving to the same tick again is allowed, and a vchannel that is further
        already stays where it is. Errors that may pass are retried until `deadline_s`.

        Raises InvalidArgument for the `closed_tick` of a batch when the cursor has other vchannels
        too, which may be behind: use `commit`. CursorMovedBack for a tick below the cursor's,
        NoSuchCursor for a new name without targets, InvalidArgument for a tick from the future,
        NoSuchCollection."""
        ...
    def open(self, channels: Sequence[str], first_ids: FirstIds) -> CursorView:
        """The cursor; a new one, at the first ids of the channels, if there is none.

        Raises BadTarget when it has no position for one of the channels."""
        ...
    def reset(
        self,
        to: ResetTo,
        targets: str | Iterable[str] = ...,
        *,
        holds: bool | None = None,
        deadline_s: float = ...,
    ) -> CursorView:
        """Set the cursor forward or back; durable on return.

        `to`: "all" (what the log holds), "latest" (what is appended from now on), ("tick", n), a
        datetime or ("time", t), or a cut (what comes after it). `targets`: those the cursor has
        from now on, none for those it has. Readers that were started from it before can no longer
        commit: they get CursorWasReset.

        `holds`: whether retention keeps what the cursor needs, within the server's
        `hold_bytes_max` and `hold_s_max`; None: as before, and a new cursor does.

        Raises OutOfRange when retention removed messages behind that tick or cut; of a time, what
        is left counts. NoSuchCursor for a new name without targets; BadTarget for another `to`, or
        a cut of other vchannels; InvalidArgument for a time from the future."""
        ...
    @property
    def rows_given(self) -> GivenRows:
        """The Arrow batches that this client's readers gave out."""
        ...
    def store(self, epoch: int, positions: Positions, deadline_s: float) -> None:
        """Commit positions of a reader; retried until the deadline."""
        ...

class GroupMember:
    """`with log.group("workers").join("trains") as member: for batch in member: ...`.

    A member from the first step, or from the begin of `with`, to the end of the block. After
    a lost connection, or when a vchannel moves, it joins again; what it had on lease there is
    delivered again, and its acknowledgement refused. Use it from one task at a time; batches may be
    settled by any task.

    A message whose next delivery is its last one comes as a batch of its own (`alone`): the step
    that returns it, and the next one, wait until what came before is settled or its leases over.

    Raises NoSuchGroup when the group is dropped, and final refusals of the server."""
    def close(self) -> None:
        """Leave: others get what was not acknowledged. Raises nothing, and may be called again."""
        ...
    def open(self) -> None:
        """Join now, and not at the first step."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> LeasedBatch: ...

class Groups:
    """`log.groups`: the groups of collections."""
    def list_on(self, vchannels: Sequence[str], *, most: int | None = None) -> list[GroupView]:
        """The same for vchannels by their names, of one or of several collections."""
        ...
    def named(
        self, name: str, *, mode: Mode | None = None, by: OrderedBy | None = None
    ) -> ConsumerGroup:
        """The consumer group of this name: members share the messages of a collection.

            with log.group("workers").join("trains") as member:
                for batch in member:
                    batch.ack()

        It need not exist. `mode` "ordered": messages come in order, `by` "vchannel" to one member
        of a vchannel at a time, by "key" to one member of a key. The mode counts when the group is
        created; a group that exists must have it, unless it is left out."""
        ...
    def list(self, target: str, *, most: int | None = None) -> list[GroupView]:
        """All groups on the vchannels of a collection, or on one vchannel; the first `most`.

        By name, then by vchannel; asked for in pages, so there may be any number."""
        ...

class LeasedBatch:
    """Messages of one vchannel for this member alone, until the lease is over.

        for batch in member:
            for message in batch.messages:
                ...
            batch.ack()

    What is neither acknowledged nor given back when the lease ends is delivered again, to any
    member. `deliveries`: how often these messages were delivered, with this time: 1 at first.
    `batches`: the same as they are stored, for Arrow rows."""

    batches: Sequence[MessageBatch]
    vchannel: str
    def ack(self, messages: Iterable[Received] | None = None, *, deadline_s: float = ...) -> None:
        """Acknowledge all messages that are left, or these: durable on return, delivered no more.

        Messages of one transaction are acknowledged together. Raises LeaseLost when the lease is
        over: they may be delivered again. OutcomeUnknown when the answer was lost, DeadlineExceeded
        when others of this member were answered so late that it was never sent. InvalidArgument
        for messages that were acknowledged before, BadCommit for those of another batch.

        More than 4,096 that do not lie next to each other go in several requests, also those of
        `nack` and `reject`. The error of one that fails says which are settled; no more are sent."""
        ...
    @property
    def alone(self) -> bool:
        """Whether it is one message, delivered for the last time before it is a dead letter."""
        ...
    def begin(self, *, deadline_s: float = ...) -> None:
        """Say that the program processes a batch that is `alone`; the member does so itself."""
        ...
    @property
    def deliveries(self) -> int:
        """How often these messages were delivered, with this time."""
        ...
    def extend(self, *, deadline_s: float = ...) -> None:
        """Begin the lease anew. Raises LeaseLost when it is over."""
        ...
    @property
    def lease_s(self) -> float:
        """How long the lease lasts from now on; 0 when it is over."""
        ...
    @property
    def messages(self) -> list[Received]:
        """Each message, in order."""
        ...
    def nack(
        self,
        messages: Iterable[Received] | None = None,
        *,
        delay_s: float = 0.0,
        deadline_s: float = ...,
    ) -> None:
        """Have all messages that are left, or these, delivered again after `delay_s`."""
        ...
    def over(self) -> None:
        """Return when nothing of it is left to settle, or the lease has ended."""
        ...
    @property
    def payloads(self) -> list[bytes]:
        """The payload of each message."""
        ...
    def reject(
        self, cause: str, messages: Iterable[Received] | None = None, *, deadline_s: float = ...
    ) -> None:
        """Give all messages that are left, or these, to the dead letters, with this cause.

        Durable on return: they are delivered no more, and their copies follow. InvalidArgument
        for a group without `deliveries_max`."""
        ...
    @property
    def settled(self) -> bool:
        """Whether nothing of it is left to settle, or the lease was found to be over."""
        ...
    def __len__(self) -> int: ...

class Master:
    """`log.master`. Every call has a deadline and raises what `broker.client.errors` has.

    first = log.master.alloc_timestamp(10)  # one call
    first = log.master.timestamps.alloc(10)  # from a batch that is at most a second old"""
    def acknowledge_flushes(self, segment_ids: Iterable[int]) -> list[int]:
        """These flushed segments need not be listed again; durable when it returns. Idempotent.

        Returns those that are not flushed, or are not there any more."""
        ...
    def add_proxy(self, proxy: ProxyMember) -> None:
        """Add a proxy, or replace the one of this id. InvalidArgument for a bad value."""
        ...
    def add_tenant(self, tenant: Tenant) -> None:
        """Add a tenant, or replace the one of this id. InvalidArgument for a bad value."""
        ...
    def alloc_id(self, count: int = 1) -> int:
        """The first of `count` consecutive ids, which no other caller gets: 64 bits, signed.

        They grow, also over restarts of the server. `log.master.ids` needs no call each.
        InvalidArgument unless 1 <= count <= 65,536."""
        ...
    def alloc_timestamp(self, count: int = 1) -> TimeTick:
        """The first of `count` consecutive timestamps of the cluster, which are the caller's.

        They are larger than all that were given out before, also over restarts of the server. Those
        of `log.master.timestamps` need no call each, and are up to a second old. InvalidArgument
        unless 1 <= count <= 65,536. While timestamps would be more than a second ahead of the
        server's clock they are waited for: ServerFailed at the deadline."""
        ...
    def alter_collection(self, name: str, **options: Unpack[KeptOptions]) -> Defined:
        """Change the retention of a collection, as `log.collections.alter` does."""
        ...
    def assign_segment_id(self, requests: Sequence[SegmentRequest]) -> list[SegmentAssignment]:
        """Reserve rows in segments; one answer each, in this order. See `SegmentAssignment.error`.

        For writers that fill segments themselves: a segment that is opened here takes nothing from
        the log. Not retried: a repeat reserves again, and what is not used expires."""
        ...
    def clear_clashes(self, ids: Iterable[str]) -> list[str]:
        """Stop listing these; durable when it returns. Returns those that were not listed.

        Nothing else changes: the broadcast stays on the control channel, and is not applied later."""
        ...
    def close_time_ticks(self, origin: TickOrigin) -> TimeTicksView:
        """Stop the ticks of this origin. No effect when none are set."""
        ...
    def count_partitions(self) -> Mapping[CollectionId, int]:
        """How many partitions each collection has, of all databases; a call for each thousand."""
        ...
    def create_alias(
        self, collection: str, alias: str, *, alter: bool = False, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Give a collection another name in its database; returns the collection's id.

        InvalidArgument for a bad name, the name of a collection, and the alias of another
        collection; with `alter` the alias moves."""
        ...
    def create_collection(
        self,
        name: str,
        *,
        shards: int = 1,
        schema: pa.Schema | None = None,
        milvus_schema: bytes = b"",
        **options: Unpack[KeptOptions],
    ) -> CollectionDescription:
        """Create a collection with one vchannel for each shard; `_default` is its first partition.

        At most one of `schema`, for Arrow rows, and `milvus_schema`, the bytes of a
        `CollectionSchema`. Without both it takes messages of any bytes. Raises AlreadyExists when a
        collection has the name; UnknownDefinition for an unknown database; InvalidArgument for a
        bad name, number of shards or schema, for the name of an alias, and for an old `timestamp`."""
        ...
    def create_database(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Add a database. InvalidArgument for a bad name and one that is taken."""
        ...
    def create_index(
        self,
        collection: str,
        field: str,
        params: Mapping[str, str],
        *,
        name: str = "",
        **options: Unpack[ChangeOptions],
    ) -> Defined:
        """Describe an index on a vector field; `name` "" is `_default_idx`.

        The same field and parameters again are the same index, under the new name. An index that
        has the name already gets another one. InvalidArgument for a field that is unknown or has no
        vectors, and for bad parameters. Nothing builds it: this is for programs that do."""
        ...
    def create_partition(
        self, collection: str, partition: str, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Add a partition. InvalidArgument for a bad or taken name, and for the 4,097th."""
        ...
    def delete_proxy(self, proxy_id: int) -> None:
        """Remove a proxy. UnknownMember when there is none.

        ResourceAcquired while the time ticks of the proxies wait for it: set them without it first."""
        ...
    def delete_tenant(self, tenant_id: int) -> None:
        """Remove a tenant. UnknownMember when there is none."""
        ...
    def describe_collection(
        self, name: str = "", *, database: str = "", collection_id: int = 0
    ) -> CollectionDescription:
        """The collection of this name, alias or id. Raises UnknownDefinition.

        An id is looked up in every database, and only without a name."""
        ...
    def describe_index(
        self, collection: str, field: str = "", *, database: str = ""
    ) -> list[IndexDescription]:
        """The indexes of a field, or of all fields. InvalidArgument for an unknown field."""
        ...
    def describe_segment(self, collection_id: int, segment_id: int) -> int:
        """The index of the segment; 0: it has none. ChannelNotExist if it is not there."""
        ...
    def describe_time_ticks(self, origin: TickOrigin) -> TimeTicksView:
        """Who has reported what, which tick has passed, and which one every channel has."""
        ...
    def drop_alias(self, alias: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Remove another name of a collection. Raises UnknownDefinition."""
        ...
    def drop_collection(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Drop a collection with its partitions, aliases and indexes. Raises UnknownDefinition.

        An alias is no name here."""
        ...
    def drop_database(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Remove a database. Raises UnknownDefinition.

        InvalidArgument while it has collections, and for the default one."""
        ...
    def drop_index(
        self, collection: str, field: str, *, name: str = "", **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Remove an index; one that is unknown is no error. `name` "": the only one of the field.

        InvalidArgument without a name when the field has several."""
        ...
    def drop_partition(
        self, collection: str, partition: str, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Drop a partition. Raises UnknownDefinition; InvalidArgument for `_default`."""
        ...
    def get_component_states(self) -> tuple[Component, list[Component]]:
        """The state of the master, and of each of its parts."""
        ...
    def get_dd_channel(self) -> str:
        """The channel that carries the changes of collections and partitions, in their order."""
        ...
    def get_segment_states(self, segment_ids: Iterable[int]) -> Mapping[int, str]:
        """ "growing", "sealed", "flushed", "dropped" or "not_exist" of each segment."""
        ...
    def has_collection(self, name: str, *, database: str = "") -> bool:
        """Whether a collection has this name or alias. InvalidArgument for what is no name."""
        ...
    def has_partition(self, collection: str, partition: str, *, database: str = "") -> bool:
        """Whether the collection has this partition."""
        ...
    @property
    def ids(self) -> CachedAllocator:
        """Ids from a batch that this client has fetched."""
        ...
    def list_clashes(self) -> Iterator[Clash]:
        """Every clash by id, fetched in pages. `log.admin.health()` has the first hundred."""
        ...
    def list_databases(self) -> Mapping[str, int]:
        """The id of each database, sorted by name; the default one has the id 0."""
        ...
    def list_flushes(self) -> Iterator[SegmentMeta]:
        """The flushed segments that nobody has acknowledged, oldest flush first."""
        ...
    def list_proxies(self) -> list[ProxyMember]:
        """All proxies, by id."""
        ...
    def list_tenants(self) -> list[Tenant]:
        """All tenants, by id."""
        ...
    def report_binlogs(self, counts: Mapping[int, int]) -> list[int]:
        """Report how many files writers have made of growing segments; more than 32 seal one.

        Returns those that are not known to grow. A segment is known within two seconds."""
        ...
    def report_query_node(
        self, node: int, timestamp: int, loads: Iterable[SegmentLoad]
    ) -> list[int]:
        """Report what a query node has loaded; returns the segments that nobody knows."""
        ...
    def report_time_tick(self, origin: TickOrigin, peer: int, tick: int) -> TimeTick:
        """Promise that this peer will add no message with a timestamp up to `tick`.

        Returns the newest tick that passed. Call it when the appends of all such messages have
        returned, and again and again: after a restart of the server nothing passes until every peer
        has reported anew. May be repeated; retried until the deadline. UnknownMember for one that
        is no peer; InvalidArgument for a tick of 0 or of the future."""
        ...
    def seal_collection(self, collection_id: int) -> int:
        """Seal its growing segments; returns how many vchannels were told to. Idempotent.

        A sealed segment is flushed when nothing can be written into it any more."""
        ...
    def set_time_ticks(
        self,
        origin: TickOrigin,
        peers: Iterable[int],
        channels: Iterable[str],
        *,
        policy: TickPolicy | None = None,
        interval_ms: int = 0,
    ) -> TimeTicksView:
        """Set who must report ticks, and the channels that get one message for each that passes.

        No tick passes before each of the `peers` has reported, also after a restart of the server.
        A new peer must be set before it takes its first timestamp. `channels` are pchannels and
        vchannels; the message has type 1200, and the tick in the property `tidemark.time_tick`.
        `policy`: SOFT for proxies, `interval_ms` (500) apart; for write nodes LIST, or MINIMUM.
        Durable when it returns. UnknownMember for a proxy that was not added, and for an unknown
        channel; InvalidArgument for other bad values."""
        ...
    def show_aliases(self, collection: str = "", *, database: str = "") -> Mapping[str, str]:
        """Each alias with its collection, sorted by alias: of one collection, or of all."""
        ...
    def show_collections(
        self, *, database: str = "", page: int = 1000
    ) -> Mapping[str, CollectionId]:
        """The id of each collection of a database, sorted by name. Raises UnknownDefinition.

        Fetched in pages of 1 to 1,000: one that is created meanwhile may be missing."""
        ...
    def show_partitions(self, collection: str, *, database: str = "") -> Mapping[str, PartitionId]:
        """The id of each partition, sorted by name."""
        ...
    def show_segments(
        self, collection_id: int, partition_id: int | None = None, *, most: int | None = None
    ) -> list[SegmentMeta]:
        """The segments of a partition, or of the whole collection, as their logs saved them.

        The id 0 stands for all collections. `most`: the first ones only, by collection, partition
        and id.

        A new or a flushed segment shows within two seconds; rows are counted up to
        `modified_tick`, which is at most `SNAPSHOT_PERIOD_S` old. ChannelNotExist for an unknown
        collection, or a partition that is not in it."""
        ...
    @property
    def timestamps(self) -> CachedAllocator:
        """Timestamps from a batch that this client fetched up to a second ago."""
        ...

class NamedBarriers:
    """`log.barriers`: all barriers of the cluster."""
    def named(self, name: str = ..., kind: KindName | None = None) -> Barrier:
        """A barrier that programs join, report to and watch; no request is made yet.

        "cluster" is the server's own: each of its ticks is closed on every pchannel. `kind`: "hard"
        (ticks that every peer has reported; the default), "hard-minimum" or "soft" (the smallest of
        the peers' newest ticks). The same name with another kind is another barrier."""
        ...
    def list(self) -> list[BarrierView]:
        """Every barrier, soft ones first, then by name."""
        ...

class NamedCursors:
    """`log.cursors`: all cursors that the server keeps."""
    def named(self, name: str) -> Cursor:
        """The positions that the server keeps under this name; no request is made yet."""
        ...
    def list(self, *, measured: bool = True) -> list[CursorView]:
        """Every cursor, sorted by name, with how far it is behind; `measured` as for `get`."""
        ...

class Offsets:
    """`log.offsets`. Every call has a deadline and raises what `broker.client.errors` has."""
    def advance(self, channel: str, from_id: int, until_id: int, bytes_max: int) -> MessageId:
        """The id up to which about `bytes_max` stored bytes lie behind `from_id`.

        It is the end of a record in (from_id, until_id], behind at least one record; `from_id`
        when nothing lies there."""
        ...
    def describe(self, channels: Iterable[str]) -> dict[str, ChannelOffsets]:
        """What each channel holds now. Ids are those of its pchannel, also for a vchannel.

        Messages with ids in [first_id, next_id) are durable, and so is everything up to
        `closed_tick`."""
        ...
    def seek(self, channel: str, tick: int) -> MessageId:
        """The first id whose tick is >= `tick`; the channel's next id when there is none."""
        ...

class Peer:
    """A member of a barrier: `with barrier.join("worker-3") as peer`.

    Raises ChannelFenced once another program has joined under this name."""

    rejoined: int
    def report(self, tick: int, *, deadline_s: float = ...) -> TimeTick:
        """Report that this peer has reached `tick`; returns the newest tick that all have reached.

        A smaller tick than before changes nothing. Errors that may pass are retried until
        `deadline_s`, then DeadlineExceeded. InvalidArgument for a tick from the future. May be
        called again."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class RowScanner:
    """`for rows in scanner`: RecordBatches of one vchannel each, in the order of its ticks.

    Otherwise as `read_batches`: opens at the first step, reopens broken streams, and ends only at
    `until`. Use it from one task at a time, but for `done` and `close`."""
    def close(self) -> None:
        """End the streams; raises nothing, and may be called again."""
        ...
    @property
    def closed_tick(self) -> TimeTick:
        """No row with a tick up to it is still to come, as of `read_batches`; 0: unknown."""
        ...
    def commit(self, *, deadline_s: float = ...) -> None:
        """Commit all rows that the program has got; see `Reading.commit`."""
        ...
    def done(self) -> None:
        """Return once nothing more is read; the last batches may not have been taken yet."""
        ...
    @property
    def error(self) -> TidemarkError | None:
        """The error that ended the read; None while it runs, at its end, and after `close`."""
        ...
    def open(self) -> None:
        """Fix the start positions and begin to read ahead; no-op when open already."""
        ...
    def schema(self) -> Any:
        """The `pyarrow.Schema` of every batch."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

class Scanner:
    """What `Client.read` returns: batches of decoded messages."""
    def close(self) -> None:
        """End the streams; raises nothing, and may be called again."""
        ...
    @property
    def closed_tick(self) -> TimeTick:
        """No message with a tick up to it is still to come on any of the vchannels; 0: unknown.

        Batches that were read ahead count as still to come until a step has returned them. So a
        program that has processed all it got may resume behind this tick later."""
        ...
    def commit(self, *, deadline_s: float = ...) -> None:
        """Commit all that the program has got to the cursor that the reader was started from.

        Durable on return: the next reader of the cursor begins behind it. Of `messages()` it is
        everything up to the message that was returned last. What was read ahead is not included, so
        the position never goes beyond what the program has got. It moves shards without messages
        too. May be repeated.

        Raises BadCommit for a reader that was not started from a cursor, NoSuchCursor when that was
        dropped, CursorWasReset, DeadlineExceeded."""
        ...
    def done(self) -> None:
        """Return once nothing more is read: at its end, at an error, or after `close`.

        The last batches may not have been taken yet."""
        ...
    @property
    def error(self) -> TidemarkError | None:
        """The error that ended the read; None while it runs, at its end, and after `close`."""
        ...
    def messages(self) -> Iterator[Received]:
        """The same, message by message; a cancelled step loses none."""
        ...
    def open(self) -> None:
        """Fix the start positions and begin to read ahead; no-op when open already."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...

class Stage:
    """One attempt at one part of a batch, on any number of vchannels; made by `Client.stage`.

    Leaving an `with` block without `seal` aborts it. Every method raises TransactionExpired
    when the broker has waited too long for the next row or for the commit; write the part again
    then, as another attempt. `unreachable_s`: how long it waits for a node that was never reached
    before NodeUnreachable is raised; its channels may move to another node meanwhile."""

    unreachable_s: float
    def ack(
        self,
        batch: LeasedBatch,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Acknowledge messages of a group with the commit of the batch; see `Txn.ack`."""
        ...
    def append(
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Stage one message; returns when it would survive a power cut.

        It is read with the tick of the commit. Raises Unrecoverable when the pchannel may hold no
        more uncommitted bytes: make the batches smaller. Otherwise as `Client.append`; after
        OutcomeUnknown the stage cannot be sealed any more."""
        ...
    def append_arrow(
        self,
        target: str,
        rows: pa.RecordBatch | pa.Table,
        *,
        key: str | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Stage Arrow rows, as `Client.append_arrow`.

        When it fails, some of them may be in the stage: discard it."""
        ...
    def append_batch(
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Stage messages as one batch on one vchannel, as `Client.append_batch`."""
        ...
    def append_messages(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Stage messages, each on the shard of its key; results in order, or the first error."""
        ...
    def discard(self) -> None:
        """Abort what was written; what cannot be reached now expires."""
        ...
    def seal(self) -> StagedPart:
        """End the stage; returns what the commit of the batch needs.

        Raises OutcomeUnknown when it is not known whether all of it was written: discard it then."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class StagedBatch:
    """What is appended and acknowledged in it takes effect together, or never: `Client.staged`.

        with log.staged() as out:
            out.append("bills", b"two tickets to Ulm")
            out.ack(batch)

    Targets are on any nodes. Leaving the block commits, an exception aborts. Raises
    TransactionExpired when nothing was sent for `keepalive_s`, or a flush or a change of a
    collection ended a part: nothing of it will be read, and what it acknowledged comes again.
    OutcomeUnknown when the answer to the commit was lost: it took effect whole or not at all."""
    def ack(
        self,
        batch: LeasedBatch,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Acknowledge messages of a group with the commit of the batch; see `Txn.ack`."""
        ...
    def append(
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Stage one message; returns when it would survive a power cut.

        It is read with the tick of the commit. Raises Unrecoverable when the pchannel may hold no
        more uncommitted bytes: make the batches smaller. Otherwise as `Client.append`; after
        OutcomeUnknown the stage cannot be sealed any more."""
        ...
    def append_arrow(
        self,
        target: str,
        rows: pa.RecordBatch | pa.Table,
        *,
        key: str | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Stage Arrow rows, as `Client.append_arrow`.

        When it fails, some of them may be in the stage: discard it."""
        ...
    def append_batch(
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Stage messages as one batch on one vchannel, as `Client.append_batch`."""
        ...
    def append_messages(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Stage messages, each on the shard of its key; results in order, or the first error."""
        ...
    def commit(self) -> BatchCommitted:
        """Make all of it take effect; leaving the block does it. `ticks`: where, by vchannel."""
        ...
    def discard(self) -> None:
        """Abort it; what it acknowledged comes again. What cannot be reached now expires."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Txn:
    """A transaction on one vchannel, made by `Client.txn`; use it with `with`.

        with log.txn(vchannel) as txn:
            txn.append(b"both")
            txn.append(b"or neither")

    Leaving the block commits, an exception rolls back. Raises TransactionExpired when the keepalive
    passed after the newest append, or a flush or a change of the collection ended the transaction:
    nothing of it will be read, and all of it may be tried again."""
    def ack(
        self,
        batch: LeasedBatch,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Acknowledge messages of a group, all that are left or these, with the commit.

        From now on the transaction holds them, and their lease does not count for them: they are
        acknowledged when it commits, and delivered again when it does not. BadTransaction for
        messages of another vchannel: use `Client.staged`. LeaseLost when the lease is over. After
        any error the transaction cannot be committed."""
        ...
    def append(
        self,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message, an insert unless `type` says otherwise; durable, not yet visible.

        It is read with the tick of the commit. After OutcomeUnknown, or when an append is
        cancelled, the transaction cannot be committed any more. See also `Client.append`."""
        ...
    def append_arrow(
        self,
        rows: pa.RecordBatch | pa.Table,
        *,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Append rows, as `Client.append_arrow`, all on the vchannel of the transaction.

        When it fails, some of the rows may be in the transaction: roll back."""
        ...
    def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = ...,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Append messages as one batch, as `Client.append_batch`; stored whole or not at all.

        Sent again when an answer is lost, and stored once. Read with the tick of the commit."""
        ...
    def append_messages(
        self,
        messages: Iterable[Message],
        *,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Append many messages; raises the first error when any failed."""
        ...
    def begin(self) -> None:
        """Begin, once; `with` does it. Raises InvalidArgument for a bad keepalive."""
        ...
    @property
    def cannot_commit(self) -> bool:
        """Whether an append of unknown outcome, or a failed `ack`, prevents the commit for good."""
        ...
    def commit(self) -> Appended:
        """Make all of it visible; returns where the commit is. Leaving the block does it.

        Raises OutcomeUnknown when it may or may not be committed, TransactionExpired when it is
        not and never will be."""
        ...
    @property
    def committing(self) -> bool:
        """Whether a commit was sent, so that only its answer can tell the outcome."""
        ...
    @property
    def id(self) -> int:
        """The id, unique on its pchannel; 0 before the begin."""
        ...
    @property
    def keepalive_s(self) -> float:
        """Its lifetime after its newest append, as granted by the server; 0 before the begin."""
        ...
    def rollback(self) -> None:
        """Discard all of it."""
        ...
    @property
    def vchannel(self) -> VChannelName:
        """The vchannel; empty before the begin."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Watch:
    """`for tick in barrier.watch():` never ends; it reconnects when a stream breaks.

    Each tick is larger than the one before. A soft barrier yields the newest tick only; a hard one
    every tick, unless the watcher falls 1024 behind. Leave early with `with` or `close`.
    For one task at a time. Raises a refusal of the server that is not retriable, and ProtocolBroken
    for a server that does not offer barriers."""
    def close(self) -> None:
        """End the stream. Never fails; may be called again."""
        ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> TimeTick: ...

class Ticket:
    """An append that is under way, made by `append_soon`; `result` waits for its answer."""
    def cancel(self) -> bool:
        """Withdraw the message if its batch was not sent yet; whether there was no answer yet."""
        ...
    def done(self) -> bool:
        """Whether the answer is there."""
        ...
    def result(self, timeout_s: float | None = None) -> Appended:
        """Where the message landed. Raises its error, or TimeoutError while there is no answer."""
        ...

def connect(
    server: str = ...,
    *,
    cluster: str = "by-dev",
    deadlines: Deadlines = ...,
    limits: SendLimits = ...,
    gathering: Gathering = ...,
    resend: bool = True,
    tls: Tls | None = None,
    token: str = "",
) -> Client:
    """Connect to the cluster that `server` belongs to: HOST:PORT, or several with commas.

        with connect("127.0.0.1:19531", deadlines=Deadlines(append_s=30)) as log:
            log.append("flights", b"...")

    Raises BadAddress when `server` is not HOST:PORT, and ConnectionLost at once when nothing
    listens there; the client reconnects after later losses. Of coordinators that stand by for each
    other give all addresses: the client follows the leader, which one that stands by names.
    `cluster`: a server of another cluster refuses every call with OperationIgnored. `limits` bounds
    what waits to be appended to each pchannel; `gathering` sets how appends become batches.

    With `resend` an append whose stream broke is sent again and stored once, because the log
    remembers the numbers of batches; only a message of Milvus's own kinds (another `type`,
    `version`, `header`, or a barrier) may be stored twice. Without it, OutcomeUnknown is raised.

    `tls` connects with TLS, to every server of the cluster: `Tls(ca="ca.pem")`, with `cert` and
    `key` where servers ask clients for a certificate. Raises BadTlsFiles for files that cannot be
    used, and NotTrusted when a server's certificate is not trusted. A server that does not accept
    this client's certificate ends the connection: ConnectionLost, which names that as a cause.

    `token` proves who calls, where the broker asks; use it with TLS. Raises BadToken for text that
    is no token, and NotAuthenticated when the broker does not know it.

    Leaving the block waits up to `Deadlines.close_s` for pending appends, then ends everything."""
    ...
