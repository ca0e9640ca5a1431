"""Creates, drops, seeks and lists the groups of one pchannel, and starts their actors.

Changes are made one after the other, so that two that contradict each other cannot cross. Creations
of different groups cannot, so they are written together.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

import anyio

from actors import (
    Actor,
    ActorDied,
    ActorError,
    ChildSpec,
    Context,
    Envelope,
    MailboxSpec,
    NameTaken,
    NoSuchActor,
    Overflow,
    Ref,
    Restart,
    StaleTerm,
)
from broker.core.groups.group_changes import (
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
)
from broker.core.groups.group_rules import (
    GROUPS_MAX,
    LEASE_MS,
    lease_refusal,
    limit_refusal,
    mode_refusal,
    name_refusal,
    no_group,
)
from broker.core.groups.schedule_name import SCHEDULE
from broker.core.naming import belongs_to, is_physical
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey, GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import PChannelName, TimeTick
from broker.node.group_messages import (
    AlterGroup,
    CreateGroup,
    DropGroup,
    ForgetDropped,
    GroupMessage,
    KeeperMessage,
    ListGroups,
    OpenGroup,
    OpenSchedule,
    SeekGroup,
    StartSchedules,
    StopGroup,
)
from broker.node.groups.creation_runs import creation_runs
from broker.node.groups.dead_letter_copies import dead_letters_spec
from broker.node.groups.dropped_vchannels import DroppedVChannels
from broker.node.groups.group_leases import GroupLeases
from broker.node.groups.group_list import listed_groups
from broker.node.groups.group_writer import GroupWriter
from broker.node.groups.scheduler import scheduler_spec
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

GROUPS: Final = "groups"
GROUP_KEEPER: Final = "group_keeper"
STOP_S: Final = 5.0
START_S: Final = 5.0
RETRY_S: Final = 1.0
DROPPED_S: Final = 10.0
"""How often it looks for collections that were dropped."""

_OfOneGroup = CreateGroup | AlterGroup | SeekGroup | DropGroup | OpenGroup


class GroupKeeper(Actor[KeeperMessage]):
    """See the module."""

    _context: Context[KeeperMessage]

    def __init__(self, name: PChannelName, node: NodeRuntime) -> None:
        self._name = name
        self._node = node
        self._opened: OpenChannel | None = None
        self._again_due = False

    async def started(self, context: Context[KeeperMessage]) -> None:
        """Make itself known to those who locate the channel."""
        self._context = context
        self._opened = opened = self._node.open_channels.find(self._name)
        if opened is not None:
            opened.groups.keeper = context.self
            self._writer = GroupWriter(opened, self._node, context.clock)
            self._dropped = DroppedVChannels(opened, self._node.catalog)
            context.after(0.0, StartSchedules())
            context.after(DROPPED_S, ForgetDropped())

    async def receive(self, batch: Sequence[Envelope[KeeperMessage]]) -> None:
        """One request after the other, except creations of different groups, which share writes."""
        opened = self._opened
        if opened is None:
            for envelope in batch:
                cause = f"{self._name} is closing; locate the channel again and retry"
                envelope.reply(Refusal(StreamingCode.ON_SHUTDOWN, cause))
            return
        for together in creation_runs(batch):
            if len(together) == 1:
                await self._carry_out(opened, together[0])
                continue
            async with anyio.create_task_group() as tasks:
                for envelope in together:
                    tasks.start_soon(self._carry_out, opened, envelope)

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many groups the pchannel has, and how many run."""
        return {} if self._opened is None else dict(self._opened.groups.figures())

    async def _carry_out(self, opened: OpenChannel, envelope: Envelope[KeeperMessage]) -> None:
        match envelope.message:
            case ListGroups() as wanted:
                envelope.reply(listed_groups(opened.groups, wanted))
            case CreateGroup() | AlterGroup() | SeekGroup() | DropGroup() | OpenGroup() as request:
                key = request.key
                refusal = name_refusal(key.name) or _unsettled_refusal(opened, key)
                envelope.reply(refusal or await self._serve(opened, request))
            case OpenSchedule(vchannel):
                envelope.reply(await self._open_schedule(opened, vchannel))
            case _ as timer:
                await self._take_care(opened, timer)

    async def _serve(self, opened: OpenChannel, request: _OfOneGroup) -> object:
        match request:
            case CreateGroup():
                return await self._create(opened, request)
            case AlterGroup():
                return await self._alter(opened, request)
            case SeekGroup(key, floor):
                return await self._seek(opened, key, floor)
            case DropGroup(key):
                return await self._drop(opened, key)
            case OpenGroup(key):
                return await self._open(opened, key)
            case _:
                assert_never(request)

    async def _take_care(self, opened: OpenChannel, timer: StartSchedules | ForgetDropped) -> None:
        match timer:
            case StartSchedules():
                self._again_due = False
                for key in [it for it in opened.groups.table.groups if it.name == SCHEDULE]:
                    await self._start_schedule(key)
                if any(key.name == SCHEDULE for key in opened.groups.unsettled):
                    # Nobody would start one that is stored only now.
                    self._start_again()
                groups = opened.groups.table.groups.values()
                for key in [it.key for it in groups if it.has_exceeded]:
                    # It decides that they die, once it may begin.
                    if isinstance(await self._open(opened, key), Refusal):
                        self._start_again()
                await self._start_dead_letters(opened)
            case ForgetDropped():
                await self._forget_dropped(opened)
                self._context.after(DROPPED_S, ForgetDropped())
            case _:
                assert_never(timer)

    async def _forget_dropped(self, opened: OpenChannel) -> None:
        """End and drop what belongs to dropped collections, members or not: it would hold the log.

        Members are told that there is no such group.
        """
        groups = opened.groups.table.groups
        dropped = await self._dropped.among({it.vchannel for it in groups})
        gone = [it for it in groups if it.vchannel in dropped]
        for key in [it for it in gone if it not in opened.groups.unsettled]:
            with contextlib.suppress(ActorError):
                await self._context.tree.stop_child(self._path(key))
            await self._stop_dead_letters(key)
            opened.groups.running.pop(key, None)
            opened.groups.troubles.pop(key, None)
            if await self._writer.write(key.vchannel, GroupDropped(key.name)) is not None:
                return  # the next look goes on

    async def _stop_dead_letters(self, key: GroupKey) -> None:
        """What it has sent is stored before any later change of the group: no copy comes then."""
        with contextlib.suppress(ActorError):
            spec = dead_letters_spec(self._name, self._node, key)
            await self._context.tree.stop_child(f"{self._above()}/{spec.name}")

    async def _start_dead_letters(self, opened: OpenChannel) -> None:
        """Copy what is dying, whether members come or not."""
        for key in [it.key for it in opened.groups.table.groups.values() if it.dying]:
            try:
                spec = dead_letters_spec(self._name, self._node, key)
                await self._context.tree.start_child(self._above(), spec, deadline_s=START_S)
            except NameTaken:
                continue  # a Group was faster
            except ActorError:
                self._start_again()
                return

    async def _create(self, opened: OpenChannel, create: CreateGroup) -> GroupView | Refusal:
        key, groups = create.key, opened.groups.table.groups
        refusal = (
            lease_refusal(create.lease_ms)
            or self._vchannel_refusal(key.vchannel)
            or _floor_refusal(opened, create.floor)
            or await self._dropped_refusal(key.vchannel)
            or await self._limit_refusal(create.limit)
        )
        if refusal is not None:
            return refusal
        if key in groups:
            if create.exist_ok:
                return mode_refusal(key, create.mode, groups[key].mode) or opened.groups.view(key)
            cause = f"group {key.name!r} exists already on {key.vchannel}"
            return Refusal(StreamingCode.IGNORED_OPERATION, cause)
        refusal = _too_many(opened, self._name)
        if refusal is not None:
            return refusal
        mode = create.mode or GroupMode.SHARED
        change = GroupCreated(key.name, create.lease_ms, create.floor, create.limit, mode)
        return await self._changed(opened, key, change)

    async def _alter(self, opened: OpenChannel, alter: AlterGroup) -> GroupView | Refusal:
        key, known = alter.key, opened.groups.table.groups.get(alter.key)
        if known is None:
            return no_group(key.vchannel, key.name)
        lease_ms = known.lease_ms if alter.lease_ms is None else alter.lease_ms
        refusal = lease_refusal(lease_ms) or await self._limit_refusal(alter.limit)
        refusal = refusal or await self._stop(opened, key)
        if refusal is not None:
            return refusal
        change = GroupAltered(key.name, lease_ms, alter.limit)
        altered = await self._changed(opened, key, change)
        await self._start_dead_letters(opened)
        return altered

    async def _seek(
        self, opened: OpenChannel, key: GroupKey, floor: TimeTick | None
    ) -> GroupView | Refusal:
        refusal = _floor_refusal(opened, floor) or await self._stop(opened, key)
        if refusal is not None:
            return refusal
        return await self._changed(opened, key, GroupSought(key.name, floor))

    async def _drop(self, opened: OpenChannel, key: GroupKey) -> Refusal | None:
        refusal = await self._stop(opened, key)
        if refusal is not None:
            return refusal
        return await self._writer.write(key.vchannel, GroupDropped(key.name))

    async def _changed(
        self, opened: OpenChannel, key: GroupKey, change: GroupChange
    ) -> GroupView | Refusal:
        refusal = await self._writer.write(key.vchannel, change)
        return opened.groups.view(key) if refusal is None else refusal

    async def _stop(self, opened: OpenChannel, key: GroupKey) -> Refusal | None:
        """Have the Group end, so that it does not go on from what changes now."""
        if key not in opened.groups.table.groups:
            return no_group(key.vchannel, key.name)
        try:
            refusal = await self._find(key).ask(StopGroup(), deadline_s=STOP_S)
        except (NoSuchActor, ActorDied, StaleTerm):
            refusal = None  # it does not run
        except ActorError as error:
            return _retry(error)  # it is busy, and may have members
        if refusal is not None:
            return refusal
        try:
            # Also one that has failed, and would start again amid the change.
            await self._context.tree.stop_child(self._path(key))
        except NoSuchActor:
            pass
        except ActorError as error:
            return _retry(error)
        opened.groups.running.pop(key, None)
        await self._stop_dead_letters(key)
        opened.groups.troubles.pop(key, None)  # after its last batch, which may have failed
        return None

    async def _open(self, opened: OpenChannel, key: GroupKey) -> Ref[GroupMessage] | Refusal:
        if key not in opened.groups.table.groups:
            return no_group(key.vchannel, key.name)
        try:
            with contextlib.suppress(NoSuchActor):
                return self._find(key)
            spec = _spec(self._name, key, self._node)
            return await self._context.tree.start_child(self._above(), spec, deadline_s=START_S)
        except ActorError as error:
            return _retry(error)
        except Refused as error:  # it may not begin yet
            return error.refusal

    async def _open_schedule(self, opened: OpenChannel, vchannel: str) -> Refusal | None:
        key = GroupKey(vchannel, SCHEDULE)
        if key in opened.groups.table.groups:
            return None
        refusal = self._vchannel_refusal(vchannel) or _unsettled_refusal(opened, key)
        refusal = refusal or _too_many(opened, self._name)
        # From its own tick on: no message could be delayed before.
        change = GroupCreated(SCHEDULE, LEASE_MS, None)
        refusal = refusal or await self._writer.write(vchannel, change)
        if refusal is None:
            await self._start_schedule(key)
        elif key in opened.groups.unsettled:
            self._start_again()
        return refusal

    async def _start_schedule(self, key: GroupKey) -> None:
        try:
            self._find(key)
        except NoSuchActor:
            try:
                spec = scheduler_spec(self._name, key, self._node)
                await self._context.tree.start_child(self._above(), spec, deadline_s=START_S)
            except ActorError:
                self._start_again()

    def _start_again(self) -> None:
        """Once for all that could not start: each such message starts all of them."""
        if not self._again_due:
            self._again_due = True
            self._context.after(RETRY_S, StartSchedules())

    def _find(self, key: GroupKey) -> Ref[GroupMessage]:
        return self._context.tree.find(self._path(key))

    def _path(self, key: GroupKey) -> str:
        return f"{self._above()}/{key.name}@{key.vchannel}"

    def _above(self) -> str:
        return f"{self._context.path.rpartition('/')[0]}/{GROUPS}"

    async def _limit_refusal(self, limit: DeliveryLimit | None) -> Refusal | None:
        refusal = limit_refusal(limit)
        if refusal is not None or limit is None:
            return refusal
        place = limit.vchannel
        return self._vchannel_refusal(place) or await self._dropped_refusal(place)

    async def _dropped_refusal(self, vchannel: str) -> Refusal | None:
        if not await self._dropped.among([vchannel]):
            return None
        cause = f"the collection of {vchannel} was dropped; a group needs one that exists"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)

    def _vchannel_refusal(self, vchannel: str) -> Refusal | None:
        if not is_physical(vchannel) and belongs_to(vchannel, self._name):
            return None
        cause = f"{vchannel!r} is not a vchannel of {self._name}"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)


def _unsettled_refusal(opened: OpenChannel, key: GroupKey) -> Refusal | None:
    """For a group whose last change may be stored or not."""
    if key not in opened.groups.unsettled:
        return None
    cause = f"a change of group {key.name!r} on {key.vchannel} is still being written; retry"
    return Refusal(StreamingCode.INNER, cause)


def _too_many(opened: OpenChannel, name: PChannelName) -> Refusal | None:
    groups = opened.groups
    coming = [key for key in groups.unsettled if key not in groups.table.groups]
    if len(groups.table.groups) + len(coming) < GROUPS_MAX:
        return None
    cause = f"{name} has {GROUPS_MAX} groups already, the limit; drop some"
    return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)


def _floor_refusal(opened: OpenChannel, floor: TimeTick | None) -> Refusal | None:
    closed = opened.tail.closed.tick
    if floor is None or 0 <= floor <= closed:
        return None
    cause = f"tick {floor} is not between 0 and {closed}, the newest closed one of the channel"
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)


def _retry(error: ActorError) -> Refusal:
    return Refusal(StreamingCode.INNER, f"the group is busy, starting or ending ({error}); retry")


def _spec(name: PChannelName, key: GroupKey, node: NodeRuntime) -> ChildSpec:
    return ChildSpec(
        name=f"{key.name}@{key.vchannel}",
        build=lambda: GroupLeases(name, key, node),
        mailbox=MailboxSpec(bound=4096, overflow=Overflow.FAIL, batch_max=1024),
        restart=Restart.TRANSIENT,
    )
