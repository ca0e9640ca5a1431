"""`log.group(name)`: create, join, show, seek and drop one consumer group."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from anyio.abc import TaskGroup

from broker.client.cluster.measurement import Measuring
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import Targets
from broker.client.errors import BadTarget, NoSuchGroup
from broker.client.groups.dead_letters import (
    DeadLetter,
    LetterParts,
    check_there,
    collection_of,
    letters,
    letters_up_to,
    limits_of,
)
from broker.client.groups.group_calls import GroupCalls, GroupStart, NewGroup
from broker.client.groups.group_subscription import GroupSubscription, Joining
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.client.groups.member_stream import MemberStream
from broker.client.groups.modes import Mode, OrderedBy, mode_of
from broker.client.groups.redrive import (
    NotAppended,
    Staged,
    Wanted,
    appended_elsewhere,
    carry_over,
    not_appended,
    old_cursor,
    redrive_group,
    redriven,
)
from broker.client.groups.vchannel_shares import VChannelShares
from broker.client.net.network import Network
from broker.client.read.deliveries import Source
from broker.client.read.resuming_reader import ResumingReader
from broker.core.naming import is_physical
from broker.model.groups.consumer_group import DeliveryLimit, GroupLag, GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TICK_LOGICAL_BITS

LEASE_S = 30.0
PREFETCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What the groups of a client share."""

    network: Network
    tasks: TaskGroup
    calls: GroupCalls
    targets: Targets
    offsets: Offsets
    measuring: Measuring
    dead: LetterParts
    staged: Staged


class ConsumerGroup:
    """A group of this name on each vchannel of a target, which is a collection or a vchannel.

        async with log.group("workers").join("trains") as member:
            async for batch in member:
                for message in batch.messages:
                    print(message.payload)
                await batch.ack()

    Every call has a deadline and raises what `broker.client.errors` has.
    """

    def __init__(self, name: str, parts: GroupParts, mode: GroupMode | None = None) -> None:
        """`mode`: in which it is created; None: shared. One that exists must have it."""
        self.name = name
        self._mode = mode
        self._parts = parts

    def join(
        self,
        target: str,
        *,
        start: GroupStart = "all",
        lease_s: float = LEASE_S,
        member: str = "",
        prefetch_bytes: int = PREFETCH_BYTES,
        deliveries_max: int | None = None,
    ) -> GroupMember:
        """A member: messages come to it, each to one member of the group at a time.

        A group that does not exist is created at `start`, as by `create`, with leases of `lease_s`
        and `deliveries_max`; a group that exists keeps its own. `prefetch_bytes`: how much of each
        vchannel it takes before its program asks. Leases begin when messages are sent, so what
        waits here must be processed within them, too: prefetch less when messages take long.
        `member`: a name for people. Messages that are not acknowledged when a lease ends, or the
        member leaves, are delivered again.
        """
        if prefetch_bytes < 1:
            raise BadTarget(f"prefetch_bytes is {prefetch_bytes}; it must be above 0")
        self._parts.targets.names(target)
        name = member or f"{socket.gethostname()}:{os.getpid()}"
        streams: set[MemberStream] = set()
        shares = VChannelShares(uuid4().hex)

        async def plan() -> Sequence[Source[LeasedBatch]]:
            shards = await self._parts.targets.current(target)
            vchannels = _checked(target, shards.vchannels)
            lease_ms = round(lease_s * 1000)
            calls = self._parts.calls
            limits = await self._limits(target, vchannels, deliveries_max)
            new = NewGroup(self.name, lease_ms, start, limits, self._mode)
            if shards.collection is None:
                # A vchannel that is named may be of a collection that was dropped: this says so.
                await calls.create(vchannels, new, exist_ok=True)
            else:
                await calls.ensure(vchannels, new)
            shares.expect(vchannels)
            joining = Joining(self.name, name, prefetch_bytes, streams, shares)
            wanted = [GroupSubscription(it, shards.collection, joining) for it in vchannels]
            network, offsets = self._parts.network, self._parts.offsets
            return [ResumingReader(network, offsets, it) for it in wanted]

        return GroupMember(plan, self._parts.tasks, streams)

    async def create(
        self,
        target: str,
        *,
        start: GroupStart = "all",
        lease_s: float = LEASE_S,
        deliveries_max: int | None = None,
        exist_ok: bool = False,
    ) -> list[GroupView]:
        """Create the group on each vchannel; one that was created in part is completed.

        `start`: "all", "latest", ("tick", n), a datetime or ("time", t). `lease_s`: how long a
        member has what it gets. `deliveries_max`: a message that was delivered so often, 2 to 1,000
        times, and never acknowledged goes to the dead letters, see `dead`. Raises AlreadyExists
        when it is on all vchannels already, unless `exist_ok`, and InvalidArgument for a bad name,
        lease or limit, or a tick from the future.
        """
        vchannels = await self._vchannels(target)
        calls, lease_ms = self._parts.calls, round(lease_s * 1000)
        limits = await self._limits(target, vchannels, deliveries_max)
        new = NewGroup(self.name, lease_ms, start, limits, self._mode)
        return await calls.create(vchannels, new, exist_ok=exist_ok)

    async def alter(
        self, target: str, *, lease_s: float | None = None, deliveries_max: int | None = None
    ) -> list[GroupView]:
        """Give the group other leases (None: as they are) and another limit (None: no limit).

        Without a limit, messages on their way to the dead letters are delivered again. Raises
        ResourceAcquired while it has members, NoSuchGroup, and InvalidArgument as `create`.
        """
        vchannels = await self._vchannels(target)
        limits = await self._limits(target, vchannels, deliveries_max)
        lease_ms = 0 if lease_s is None else max(1, round(lease_s * 1000))
        return await self._parts.calls.alter(vchannels, self.name, lease_ms, limits)

    async def dead(self, *, most: int | None = None) -> list[DeadLetter]:
        """The dead letters of groups of this name, whatever they read; oldest first per vchannel.

        They are messages of the collection `<name>.dead`, which anyone may read in batches. `most`:
        so many at the most; None: all, in memory. Raises NoSuchCollection for a group without
        `deliveries_max`.
        """
        return await letters(self._parts.dead, self.name, most)

    async def redrive(self, target: str) -> int:
        """Append the dead letters of this target to it again; how many.

        Those of earlier calls are left out: the group `redrive.<target>` on the dead letters knows
        them. So are those of earlier calls for one of its vchannels by name, and of one vchannel
        those of earlier calls for its collection; two such calls at once may append a letter twice.
        Each is appended once, whatever fails: call it again then. Raises as `dead`, and
        NoSuchVChannel for letters of a target that was dropped and made again: these are left, and
        hold the log back until the group is sought past them. The error says whether all others are
        appended; if another call holds some, it comes after 75 s without a new one, and more.
        """
        vchannels, parts = await self._vchannels(target), self._parts
        await check_there(parts.dead, self.name)
        source, again = collection_of(self.name), ConsumerGroup(redrive_group(target), parts)
        cursor = parts.dead.cursors.named(old_cursor(self.name, target))
        places = await self._vchannels(source)
        await carry_over(cursor, parts.calls, again.name, places, round(LEASE_S * 1000))
        member = again.join(source, member="redrive")
        elsewhere = await appended_elsewhere(parts.calls, again.name, places)
        wanted = Wanted(target, vchannels, elsewhere)

        async def look() -> NotAppended:
            held = await parts.offsets.describe(places)
            upto = min([it.closed_tick for it in held.values()])
            views = await parts.calls.list_all(places, again.name)
            found = letters_up_to(parts.dead, places, upto)
            return await not_appended(found, views, wanted, upto)

        return await redriven(member, partial(again.lag, source), look, wanted, parts.staged)

    async def seek(self, target: str, start: GroupStart) -> list[GroupView]:
        """Set the group to another place; what was acknowledged above it is delivered again.

        Raises ResourceAcquired while it has members, NoSuchGroup.
        """
        return await self._parts.calls.seek(await self._vchannels(target), self.name, start)

    async def drop(self, target: str) -> None:
        """Drop the group. Raises ResourceAcquired while it has members, NoSuchGroup."""
        await self._parts.calls.drop(await self._vchannels(target), self.name)

    async def describe(self, target: str) -> list[GroupView]:
        """Floor, acknowledged ranges and members on each vchannel. Raises NoSuchGroup."""
        return await self._described(await self._vchannels(target), repr(target))

    async def describe_on(self, vchannels: Sequence[str]) -> list[GroupView]:
        """The same for vchannels by their names, of one or of several collections."""
        return await self._described(vchannels, ", ".join(vchannels))

    async def _described(self, vchannels: Sequence[str], where: str) -> list[GroupView]:
        found = await self._parts.calls.list_all(vchannels, self.name)
        if not found:
            raise NoSuchGroup(f"there is no group {self.name!r} on {where}; create it first")
        return found

    async def lag(self, target: str) -> dict[str, GroupLag]:
        """How much lies above the floor of each vchannel. Raises NoSuchGroup."""
        views = await self.describe(target)
        held = await self._parts.offsets.describe([it.group.key.vchannel for it in views])
        found = {}
        for view in views:
            name, floor = view.group.key.vchannel, view.group.floor
            closed = held[name].closed_tick
            found[name] = GroupLag(0, 0, 0)
            if closed > floor:
                measure = self._parts.measuring.measure
                total = (await measure(name, after=floor, until=closed)).choice
                age = (closed >> TICK_LOGICAL_BITS) - (floor >> TICK_LOGICAL_BITS)
                # A group that began at the first message has no age there.
                ms = age if total.rows and floor else 0
                found[name] = GroupLag(total.rows, total.bytes, ms)
        return found

    async def _limits(
        self, target: str, vchannels: Sequence[str], deliveries_max: int | None
    ) -> Mapping[str, DeliveryLimit]:
        return await limits_of(self._parts.dead, self.name, target, vchannels, deliveries_max)

    async def _vchannels(self, target: str) -> Sequence[str]:
        shards = await self._parts.targets.current(target)
        return _checked(target, shards.vchannels)


class Groups:
    """`log.groups`: the groups of collections."""

    def __init__(self, parts: GroupParts) -> None:
        self._parts = parts

    def named(
        self, name: str, *, mode: Mode | None = None, by: OrderedBy | None = None
    ) -> ConsumerGroup:
        """The consumer group of this name: members share the messages of a collection.

            async with log.group("workers").join("trains") as member:
                async for batch in member:
                    await batch.ack()

        It need not exist. `mode` "ordered": messages come in order, `by` "vchannel" to one member
        of a vchannel at a time, by "key" to one member of a key. The mode counts when the group is
        created; a group that exists must have it, unless it is left out.
        """
        return ConsumerGroup(name, self._parts, mode_of(mode, by))

    async def list_on(
        self, vchannels: Sequence[str], *, most: int | None = None
    ) -> list[GroupView]:
        """The same for vchannels by their names, of one or of several collections."""
        return await self._listed(vchannels, most)

    async def _listed(self, vchannels: Sequence[str], most: int | None) -> list[GroupView]:
        if most is not None and most < 1:
            raise BadTarget(f"{most} groups are asked for; it must be 1 or more, or None for all")
        return await self._parts.calls.list_some(vchannels, most) if vchannels else []

    async def list(self, target: str, *, most: int | None = None) -> list[GroupView]:
        """All groups on the vchannels of a collection, or on one vchannel; the first `most`.

        By name, then by vchannel; asked for in pages, so there may be any number.
        """
        shards = await self._parts.targets.current(target)
        return await self._listed(_checked(target, shards.vchannels), most)


def _checked(target: str, vchannels: Sequence[str]) -> Sequence[str]:
    if any(map(is_physical, vchannels)):
        raise BadTarget(f"{target!r} is a pchannel; a group belongs to a collection or a vchannel")
    return vchannels
