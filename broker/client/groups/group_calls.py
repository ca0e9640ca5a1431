"""The calls of `tidemark.v1.Groups`, each to the nodes that serve the vchannels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    NoSuchGroup,
    OperationIgnored,
    Unrecoverable,
)
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.client.start_time import tick_at, time_of
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
from broker.model.ids import TimeTick
from broker.transport import WireMessage
from schemas.generated.tidemark import v1

SERVICE: Final = "tidemark.v1.Groups"
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
class GroupCalls:
    """One request for each vchannel; a moved one is followed, nothing else is retried."""

    owners: Owners
    deadline_s: float

    async def create(
        self,
        vchannels: Sequence[str],
        group: str,
        lease_ms: int,
        start: GroupStart,
        limits: Limits,
        *,
        exist_ok: bool,
    ) -> list[GroupView]:
        """Raises AlreadyExists, unless `exist_ok`."""

        def request(vchannel: str) -> v1.CreateGroupRequest:
            return v1.CreateGroupRequest(
                vchannel=vchannel,
                group=group,
                lease_ms=lease_ms,
                exist_ok=exist_ok,
                start=_start(start),
                limit=_limit(limits.get(vchannel)),
            )

        try:
            return [_view(it) for it in await self._each("Create", vchannels, request)]
        except OperationIgnored as error:
            raise AlreadyExists(error.cause, error.code) from None

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

        async def ask(connection: Connection, names: Sequence[str]) -> int:
            dropped = 0
            for name in names:
                request = v1.DropGroupRequest(vchannel=name, group=group)
                try:
                    await self._at(connection).ask("Drop", request, v1.DropGroupResponse)
                    dropped += 1
                except Unrecoverable:
                    continue  # an earlier call has dropped it here
            return dropped

        answers = await self.owners.ask(vchannels, ask)
        if not sum([count for _, count in answers]):
            raise NoSuchGroup(f"there is no group {group!r} on {', '.join(vchannels)}")

    async def list_all(self, vchannels: Sequence[str], group: str = "") -> list[GroupView]:
        """Those on the vchannels, or only the one of this name; by name and vchannel."""
        return await self.list_some(vchannels, None, group)

    async def list_some(
        self, vchannels: Sequence[str], most: int | None, group: str = ""
    ) -> list[GroupView]:
        """The first `most` of these; None: all, which are asked for in pages."""

        async def ask(connection: Connection, names: Sequence[str]) -> Infos:
            found: Infos = []
            page = ""
            while most is None or len(found) < most:
                left = 0 if most is None else min(PAGE_MAX, most - len(found))
                request = v1.ListGroupsRequest(
                    vchannels=list(names), group=group, page_size=left, page=page
                )
                answer = await self._at(connection).ask("List", request, v1.ListGroupsResponse)
                found += answer.groups
                page = answer.next_page
                if not page:
                    break
            return found

        found = await self.owners.ask(vchannels, ask)
        views = [_view(it) for _, groups in found for it in groups]
        return sorted(views, key=lambda it: listed_by(it.group.key))[:most]

    async def _each(
        self, method: str, vchannels: Sequence[str], request: Callable[[str], WireMessage]
    ) -> Infos:
        async def ask(connection: Connection, names: Sequence[str]) -> Infos:
            calls = self._at(connection)
            return [await calls.ask(method, request(name), v1.GroupInfo) for name in names]

        try:
            return [it for _, found in await self.owners.ask(vchannels, ask) for it in found]
        except Unrecoverable as error:
            raise NoSuchGroup(error.cause, error.code) from None

    def _at(self, connection: Connection) -> ServiceCalls:
        return ServiceCalls(connection, SERVICE, deadline_s=self.deadline_s)


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
    )
    members = [
        MemberView(it.name, it.number, it.waiting, it.leases, it.oldest_ms / 1000)
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
