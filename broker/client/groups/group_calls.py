"""The calls of `tidemark.v1.Groups`, each to the nodes that serve the vchannels."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import anyio

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    NoSuchGroup,
    NotOffered,
    OperationIgnored,
    TidemarkError,
    Unrecoverable,
)
from broker.client.groups.modes import MODES, told_mode
from broker.client.groups.repeated_changes import RepeatedChange
from broker.client.groups.turns import Turns
from broker.client.groups.unsettled_parts import told_first, told_held
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.client.refusal_kinds import refusal
from broker.client.start_time import tick_at, time_of
from broker.core.groups.group_rules import LEASE_MS, lease_refusal, limit_refusal, name_refusal
from broker.model.groups.consumer_group import (
    DeliveryLimit,
    DyingSpans,
    GroupKey,
    GroupLag,
    GroupSnapshot,
    GroupView,
    MemberView,
    TickSpan,
    listed_by,
)
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from broker.transport import WireMessage
from schemas.generated.tidemark import v1

SERVICE: Final = "tidemark.v1.Groups"
AT_ONCE: Final = 32
"""Requests to one node."""
PAGE_MAX: Final = 1000
"""Groups of one answer."""

NOT_TOLD: Final = DyingSpans((), "", 0, TimeTick(0))
"""Stands for messages on their way to the dead letters: servers say only how many there are."""

GroupStart = str | tuple[str, int | datetime | str] | datetime
"""`"all"`, `"latest"`, `("tick", n)`, a datetime or `("time", t)`."""

Limits = Mapping[str, DeliveryLimit]
"""The limit of each vchannel; without one deliveries are not limited."""

Infos = list[v1.GroupInfo]


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group to create. `mode` None: shared, or that of the group that exists."""

    name: str
    lease_ms: int
    start: GroupStart
    limits: Limits
    mode: GroupMode | None


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """One request for each vchannel; a moved one is followed.

    What may be carried out twice, to list groups and to create one that may exist, is repeated
    where the server stops or restarts something; other calls are not.
    Changes take turns, and lists do: `deadline_s` begins with the turn of a call.
    """

    owners: Owners
    deadline_s: float
    changes: Turns = field(default_factory=Turns)
    lists: Turns = field(default_factory=Turns)

    async def create(
        self, vchannels: Sequence[str], new: NewGroup, *, exist_ok: bool
    ) -> list[GroupView]:
        """Raises AlreadyExists when it is on all of them, unless `exist_ok`.

        On some only: an earlier call was interrupted, and this one completes it. After a lost
        answer a group that is there counts as this one if it is as asked for. NotOffered by a
        server without such a mode.
        """

        def request(vchannel: str) -> v1.CreateGroupRequest:
            return v1.CreateGroupRequest(
                vchannel=vchannel,
                group=new.name,
                lease_ms=new.lease_ms,
                exist_ok=exist_ok,
                start=_start(new.start),
                limit=_limit(new.limits.get(vchannel)),
                mode=v1.GroupMode(0 if new.mode is None else MODES[new.mode]),
            )

        if exist_ok:
            made = await self._each("Create", vchannels, request, repeatable=True)
            views = [_view(it) for it in made]
            return _of_mode(views, new)
        known: dict[str, OperationIgnored] = {}
        change = RepeatedChange()

        async def ask(calls: ServiceCalls, vchannel: str) -> Infos:
            try:
                with change.noting(vchannel):
                    return [await calls.ask("Create", request(vchannel), v1.GroupInfo)]
            except OperationIgnored as error:
                known[vchannel] = error
                return []

        made = await self._asked(vchannels, ask)
        there: list[GroupView] = []
        if known and (change.done or change.doubted):
            there = await self.list_all([*known], new.name)
        own = [it for it in there if it.group.key.vchannel in change.doubted and _is_as(it, new)]
        if known and not (change.done or own):
            error = known.popitem()[1]
            raise AlreadyExists(error.cause, error.code)
        found = sorted([*map(_view, made), *there], key=lambda it: listed_by(it.group.key))
        return _of_mode(found, new)

    async def ensure(self, vchannels: Sequence[str], new: NewGroup) -> None:
        """Create it where it is not yet. Raises as `create` does with `exist_ok`.

        Mostly it is everywhere, and one request to each node tells so. A start from the future is
        refused only where it is not.
        """
        _start(new.start)
        wrong = (name_refusal(new.name), lease_refusal(new.lease_ms or LEASE_MS))
        for refused in (*wrong, *map(limit_refusal, new.limits.values())):
            if refused is not None:
                raise refusal(int(refused.code), refused.cause)
        there = await self.list_some(vchannels, None, new.name, brief=True)
        # The server says what is wrong with another mode.
        known = {it.group.key.vchannel for it in there if new.mode in (None, it.group.mode)}
        missing = [it for it in vchannels if it not in known]
        if missing:
            await self.create(missing, new, exist_ok=True)

    async def alter(
        self, vchannels: Sequence[str], group: str, lease_ms: int, limits: Limits
    ) -> list[GroupView]:
        """`lease_ms` 0: as they are. Raises NoSuchGroup, ResourceAcquired while it has members."""

        def request(vchannel: str) -> v1.AlterGroupRequest:
            limit = _limit(limits.get(vchannel))
            return v1.AlterGroupRequest(
                vchannel=vchannel, group=group, lease_ms=lease_ms, limit=limit
            )

        return [_view(it) for it in await self._each("Alter", vchannels, request)]

    async def seek(
        self, vchannels: Sequence[str], group: str, start: GroupStart
    ) -> list[GroupView]:
        """Raises NoSuchGroup, ResourceAcquired while it has members."""

        def request(vchannel: str) -> v1.SeekGroupRequest:
            return v1.SeekGroupRequest(vchannel=vchannel, group=group, start=_start(start))

        return [_view(it) for it in await self._each("Seek", vchannels, request)]

    async def drop(self, vchannels: Sequence[str], group: str) -> None:
        """Raises NoSuchGroup when it is on none of them, ResourceAcquired while it has members."""

        change = RepeatedChange()

        async def ask(connection: Connection, names: Sequence[str]) -> None:
            for name in names:
                request = v1.DropGroupRequest(vchannel=name, group=group)
                try:
                    with change.noting(name):
                        await self._at(connection).ask("Drop", request, v1.DropGroupResponse)
                except Unrecoverable:
                    continue  # an earlier call has dropped it here

        await self.changes.take(partial(self.owners.ask, vchannels, ask))
        if not (change.done or change.doubted):
            raise NoSuchGroup(f"there is no group {group!r} on {', '.join(vchannels)}")

    async def list_all(self, vchannels: Sequence[str], group: str = "") -> list[GroupView]:
        """Those on the vchannels, or only the one of this name; by name and vchannel."""
        return await self.list_some(vchannels, None, group)

    async def list_some(
        self, vchannels: Sequence[str], most: int | None, group: str = "", *, brief: bool = False
    ) -> list[GroupView]:
        """The first `most` of these; None: all, which are asked for in pages.

        `brief`: without their members, which older servers send all the same.
        """

        async def ask(connection: Connection, names: Sequence[str]) -> Infos:
            found: Infos = []
            page = ""
            while most is None or len(found) < most:
                left = 0 if most is None else min(PAGE_MAX, most - len(found))
                request = v1.ListGroupsRequest(
                    vchannels=list(names), group=group, page_size=left, page=page, brief=brief
                )
                answer = await self._at(connection).ask("List", request, v1.ListGroupsResponse)
                found += answer.groups
                page = answer.next_page
                if not page:
                    break
            return found

        found = await self.lists.take(partial(self.owners.ask, vchannels, ask, repeatable=True))
        views = [_view(it) for _, groups in found for it in groups]
        return sorted(views, key=lambda it: listed_by(it.group.key))[:most]

    async def _each(
        self,
        method: str,
        vchannels: Sequence[str],
        request: Callable[[str], WireMessage],
        *,
        repeatable: bool = False,
    ) -> Infos:
        async def ask(calls: ServiceCalls, vchannel: str) -> Infos:
            return [await calls.ask(method, request(vchannel), v1.GroupInfo)]

        return await self._asked(vchannels, ask, repeatable=repeatable)

    async def _asked(
        self,
        vchannels: Sequence[str],
        ask: Callable[[ServiceCalls, str], Awaitable[Infos]],
        *,
        repeatable: bool = False,
    ) -> Infos:
        async def ask_all(connection: Connection, names: Sequence[str]) -> Infos:
            return await _together(partial(ask, self._at(connection)), names)

        try:
            asked = partial(self.owners.ask, vchannels, ask_all, repeatable=repeatable)
            answers = await self.changes.take(asked)
            return [it for _, found in answers for it in found]
        except Unrecoverable as error:
            raise NoSuchGroup(error.cause, error.code) from None

    def _at(self, connection: Connection) -> ServiceCalls:
        return ServiceCalls(connection, SERVICE, deadline_s=self.deadline_s)


async def _together(ask: Callable[[str], Awaitable[Infos]], vchannels: Sequence[str]) -> Infos:
    """Ask about all at once, so that the log of a node stores their changes by few writes.

    Raises the first error after all have ended.
    """
    found: dict[str, Infos] = {}
    errors: list[TidemarkError] = []
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(vchannel: str) -> None:
        try:
            async with limiter:
                found[vchannel] = await ask(vchannel)
        except TidemarkError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for vchannel in vchannels:
            tasks.start_soon(one, vchannel)
    if errors:
        raise errors[0]
    return [it for vchannel in vchannels for it in found[vchannel]]


def _of_mode(views: list[GroupView], new: NewGroup) -> list[GroupView]:
    """The same. Raises NotOffered where the group has another mode than was asked for."""
    other = [it.group.key.vchannel for it in views if it.group.mode is not new.mode]
    if new.mode is None or not other:
        return views
    raise NotOffered(
        f"group {new.name!r} on {other[0]} has another mode than the one asked for, or its server"
        " is of a release without ordered groups and made a shared one; drop it, and use another"
        " name or a newer server"
    )


def _is_as(view: GroupView, new: NewGroup) -> bool:
    """Whether the group is as it is soon after it was created so; `_of_mode` tells another mode."""
    group, start = view.group, _start(new.start)
    return (
        group.lease_ms == (new.lease_ms or LEASE_MS)
        and group.limit == new.limits.get(group.key.vchannel)
        and (new.mode is not None or group.mode is GroupMode.SHARED)
        # It may be ahead: the server raises that of a group with nothing to do.
        and (start.latest or group.floor >= start.after_tick)
    )


def _start(start: GroupStart) -> v1.GroupStart:
    time = time_of(start)
    if time is not None:
        return v1.GroupStart(after_tick=max(0, tick_at(time) - 1))
    match start:
        case "all":
            return v1.GroupStart()
        case "latest":
            return v1.GroupStart(latest=True)
        case ("tick", int(tick)) if tick >= 0:
            return v1.GroupStart(after_tick=max(0, tick - 1))
        case _:
            raise BadTarget(
                f"{start!r} is no start of a group; use 'all', 'latest', ('tick', n) or a datetime"
            )


def _view(info: v1.GroupInfo) -> GroupView:
    group = GroupSnapshot(
        GroupKey(info.vchannel, info.group),
        info.lease_ms,
        TimeTick(info.floor),
        tuple(_spans(info.acked)),
        TimeTick(info.created_tick),
        TimeTick(0),
        None if info.limit is None else _read_limit(info.limit),
        # How many, without what they are.
        dying=(NOT_TOLD,) * info.dying,
        mode=told_mode(info.mode),
    )
    members = [
        MemberView(
            it.name,
            it.number,
            it.waiting,
            it.leases,
            it.oldest_ms / 1000,
            owns=it.owns,
            ran_out=it.ran_out,
        )
        for it in info.members
    ]
    lag = info.lag
    return GroupView(
        group,
        tuple(members),
        info.redelivered,
        info.trouble,
        info.dead,
        info.expired,
        TimeTick(info.seen_tick),
        None if lag is None else GroupLag(lag.messages, lag.bytes, lag.ms),
        told_first(info.first),
        tuple(map(told_held, info.held)),
    )


def _limit(limit: DeliveryLimit | None) -> v1.DeliveryLimit | None:
    if limit is None:
        return None
    return v1.DeliveryLimit(
        deliveries_max=limit.deliveries_max, vchannel=limit.vchannel, origin=limit.origin
    )


def _read_limit(limit: v1.DeliveryLimit) -> DeliveryLimit:
    return DeliveryLimit(limit.deliveries_max, limit.vchannel, limit.origin)


def _spans(spans: Iterable[v1.TickSpan]) -> list[TickSpan]:
    return [TickSpan(TimeTick(it.after), TimeTick(it.upto)) for it in spans]
