"""tidemark.v1.Groups: consumer groups of the vchannels that this node serves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import anyio
from grpclib.const import Handler

from actors import ActorDied, ActorError, AskTimeout, Ref, Request
from broker.core.groups.group_rules import LEASE_MS
from broker.core.naming import pchannel_of
from broker.core.security.grants import Resource, ResourceKind
from broker.edge.groups.group_member import serve_member
from broker.edge.groups.group_modes import asked_mode, encoded_mode
from broker.edge.groups.unsettled_answers import encoded_first, encoded_held
from broker.edge.rpc.access.access import CURRENT
from broker.edge.rpc.middleware import Call, Middleware
from broker.edge.rpc.proxies import ASK_S, RESTART_PAUSE_S, RESTART_TRIES, Proxy
from broker.edge.tidemark.admission.shard_admission import ShardAdmission
from broker.model.failure import Dropped, Refusal, Refused, StreamingCode, invalid_argument
from broker.model.groups.consumer_group import (
    DeliveryLimit,
    GroupKey,
    GroupLag,
    GroupView,
    listed_by,
)
from broker.model.ids import PChannelName, TimeTick
from broker.node.directory_messages import Locate
from broker.node.group_messages import (
    AlterGroup,
    CreateGroup,
    DropGroup,
    GroupMessage,
    ListGroups,
    OpenGroup,
    SeekGroup,
)
from broker.ports.row_schemas import RowSchemas
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Groups/"
ASKED_AT_ONCE: Final = 32
"""Keepers that one list asks at the same time."""
VCHANNELS_MAX: Final = 16_384
LISTED_SPANS_MAX: Final = 16
PAGE_MAX: Final = 1000
PAGE_BYTES: Final = 1 << 20
"""A page ends with the group that reaches it."""
ORIGIN_LENGTH_MAX: Final = 255

R = TypeVar("R")


class Keepers:
    """Asks the GroupKeepers of this node's pchannels."""

    def __init__(self, directory: Proxy) -> None:
        self._directory = directory

    async def demand(
        self, name: PChannelName, message: Request[R | Refusal], *, changes: bool = False
    ) -> R:
        """The answer of the GroupKeeper. Raises Refused.

        `changes`: the request is not repeated when it may have been carried out.
        """
        for _ in range(RESTART_TRIES):
            located = await self._directory.demand(Locate(name, None))
            keeper: Ref[Any] | None = located.groups.keeper
            if keeper is not None:
                try:
                    answer = await keeper.ask(message, deadline_s=ASK_S)
                except (ActorDied, AskTimeout) as error:
                    if changes:
                        cause = f"{error}; it may or may not have taken effect: list the groups"
                        raise Refused(StreamingCode.UNKNOWN, cause) from error
                except ActorError:
                    pass  # it restarts, or its channel moves, or too many ask
                else:
                    if isinstance(answer, Refusal):
                        raise Refused(answer.code, answer.cause)
                    return answer
            await anyio.sleep(RESTART_PAUSE_S)
        raise Refused(StreamingCode.INNER, f"the groups of {name} are not available; retry")

    async def group(self, key: GroupKey) -> Ref[GroupMessage]:
        """The Group, which is started if it does not run. Raises Refused."""
        return await self.demand(pchannel_of(key.vchannel), OpenGroup(key))


class GroupsService:
    """Create, Alter, Seek, Drop, List, Join."""

    def __init__(self, middleware: Middleware, directory: Proxy, schemas: RowSchemas) -> None:
        self._middleware = middleware
        self._directory = directory
        self._keepers = Keepers(directory)
        self._shards = ShardAdmission(schemas)

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Create": middleware.unary(v1.CreateGroupRequest, self.create),
            SERVICE + "Alter": middleware.unary(v1.AlterGroupRequest, self.alter),
            SERVICE + "Seek": middleware.unary(v1.SeekGroupRequest, self.seek),
            SERVICE + "Drop": middleware.unary(v1.DropGroupRequest, self.drop),
            SERVICE + "List": middleware.unary(v1.ListGroupsRequest, self.list),
            SERVICE + "Join": middleware.streaming(self.join),
        }

    async def create(self, request: v1.CreateGroupRequest) -> v1.GroupInfo:
        """Create a group; see `CreateGroup`."""
        key, start = _key(request.vchannel, request.group), _floor(request.start)
        await self._refuse_dropped(key.vchannel)
        lease_ms, limit = request.lease_ms or LEASE_MS, _limit(request.limit)
        mode = asked_mode(int(request.mode))
        create = CreateGroup(key, lease_ms, start, request.exist_ok, limit, mode)
        located = await self._directory.demand(Locate(pchannel_of(key.vchannel), None))
        with located.groups.creating(key):
            changes = not create.exist_ok  # else it does no harm twice
            return _encoded(await self._demand(key, create, changes=changes))

    async def alter(self, request: v1.AlterGroupRequest) -> v1.GroupInfo:
        """Change how a group delivers; see `AlterGroup`."""
        key = _key(request.vchannel, request.group)
        alter = AlterGroup(key, request.lease_ms or None, _limit(request.limit))
        return _encoded(await self._demand(key, alter))

    async def seek(self, request: v1.SeekGroupRequest) -> v1.GroupInfo:
        """Set a group's position; see `SeekGroup`."""
        key = _key(request.vchannel, request.group)
        return _encoded(await self._demand(key, SeekGroup(key, _floor(request.start))))

    async def drop(self, request: v1.DropGroupRequest) -> v1.DropGroupResponse:
        """Drop a group; see `DropGroup`."""
        key = _key(request.vchannel, request.group)
        await self._demand(key, DropGroup(key))
        return v1.DropGroupResponse()

    async def list(self, request: v1.ListGroupsRequest) -> v1.ListGroupsResponse:
        """The groups of the vchannels that the caller sees, or some and where to go on."""
        if len(request.vchannels) > VCHANNELS_MAX:
            raise invalid_argument(
                f"{len(request.vchannels)} vchannels are named, at most {VCHANNELS_MAX} can be"
            )
        by_pchannel: dict[PChannelName, list[str]] = {}
        for vchannel in request.vchannels:
            _key(vchannel, request.group)
            by_pchannel.setdefault(pchannel_of(vchannel), []).append(vchannel)
        most, after = _page_size(request.page_size), _behind(request.page)
        shows = await CURRENT.get().sight()
        seen: list[GroupView] = []
        more = True
        while more and len(seen) <= most:
            # One more, which says whether there is a next page.
            wanted = ListGroups((), request.group, most + 1, after, request.brief)
            found = await self._first(by_pchannel, wanted)
            seen += [it for it in found if shows(Resource(ResourceKind.GROUP, it.group.key.name))]
            more = len(found) > most
            after = found[-1].group.key if more else None
        if request.brief:
            return _page(seen, most, 0)
        return _page(seen, most, None if request.group else LISTED_SPANS_MAX)

    async def _first(
        self, by_pchannel: Mapping[PChannelName, Sequence[str]], wanted: ListGroups
    ) -> Sequence[GroupView]:
        """The first groups of all these vchannels, in the order of lists."""
        found: list[GroupView] = []
        failures: list[Refused | ActorError] = []
        at_once = anyio.CapacityLimiter(ASKED_AT_ONCE)

        async def ask(name: PChannelName, vchannels: Sequence[str]) -> None:
            asked = replace(wanted, vchannels=tuple(vchannels))
            try:
                async with at_once:
                    found.extend(await self._keepers.demand(name, asked))
            except (Refused, ActorError) as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for name, vchannels in by_pchannel.items():
                tasks.start_soon(ask, name, vchannels)
        if failures:
            raise failures[0]
        return sorted(found, key=lambda it: listed_by(it.group.key))[: wanted.most]

    async def join(self, call: Call) -> None:
        """Serve one member."""
        await serve_member(call, self._directory, self._keepers.group, self._middleware.limits)

    async def _refuse_dropped(self, vchannel: str) -> None:
        """Raise Refused where the catalog has dropped the collection: nothing more comes there."""
        refusal = await self._shards.refusal(vchannel, rows=False)
        if not isinstance(refusal, Dropped):
            return
        located = await self._directory.demand(Locate(pchannel_of(vchannel), None))
        # Milvus's collections have ids of their own, which may be equal to one that was dropped.
        if not located.view.has_living_collection(vchannel):
            raise Refused(refusal.code, refusal.cause)

    async def _demand(
        self, key: GroupKey, message: Request[R | Refusal], *, changes: bool = True
    ) -> R:
        return await self._keepers.demand(pchannel_of(key.vchannel), message, changes=changes)


def _page_size(asked: int) -> int:
    if asked < 0:
        raise invalid_argument(f"a page of {asked} groups; ask for 1 to {PAGE_MAX}, or 0")
    return min(asked or PAGE_MAX, PAGE_MAX)


def _page(found: Sequence[GroupView], most: int, spans_max: int | None) -> v1.ListGroupsResponse:
    """The first `most` at most. `spans_max`: of a long list not all spans, as that may be large."""
    infos: list[v1.GroupInfo] = []
    size = 0
    for view in found[:most]:
        infos.append(_encoded(view, spans_max))
        size += len(bytes(infos[-1]))
        if size >= PAGE_BYTES:
            break
    more = len(infos) < len(found)
    last = found[len(infos) - 1].group.key if more else None
    next_page = f"{last.name}@{last.vchannel}" if last is not None else ""
    return v1.ListGroupsResponse(groups=infos, next_page=next_page)


def _behind(page: str) -> GroupKey | None:
    """Where a page begins: behind the last group of the one before, which may be gone by now."""
    if not page:
        return None
    name, at, vchannel = page.partition("@")
    if not (name and at and vchannel):
        cause = f"page {page[:80]!r} is none; use `next_page` of an answer, or an empty one"
        raise invalid_argument(cause)
    return GroupKey(vchannel, name)


def _key(vchannel: str, name: str) -> GroupKey:
    if not vchannel:
        raise invalid_argument("the vchannel's name is empty")
    return GroupKey(vchannel, name)


def _floor(start: v1.GroupStart | None) -> TimeTick | None:
    if start is None:
        return TimeTick(0)
    return None if start.latest else TimeTick(start.after_tick)


def _limit(limit: v1.DeliveryLimit | None) -> DeliveryLimit | None:
    if limit is None:
        return None
    if len(limit.origin) > ORIGIN_LENGTH_MAX:
        cause = f"the origin has {len(limit.origin)} characters; at most {ORIGIN_LENGTH_MAX}"
        raise invalid_argument(cause)
    return DeliveryLimit(limit.deliveries_max, limit.vchannel, limit.origin)


def _encoded_limit(limit: DeliveryLimit | None) -> v1.DeliveryLimit | None:
    if limit is None:
        return None
    return v1.DeliveryLimit(
        deliveries_max=limit.deliveries_max, vchannel=limit.vchannel, origin=limit.origin
    )


def _encoded_lag(lag: GroupLag | None) -> v1.GroupLag | None:
    return None if lag is None else v1.GroupLag(messages=lag.messages, bytes=lag.bytes, ms=lag.ms)


def _encoded(view: GroupView, spans_max: int | None = None) -> v1.GroupInfo:
    group = view.group
    return v1.GroupInfo(
        vchannel=group.key.vchannel,
        group=group.key.name,
        lease_ms=group.lease_ms,
        floor=group.floor,
        acked=[v1.TickSpan(after=it.after, upto=it.upto) for it in group.acked[:spans_max]],
        created_tick=group.created_tick,
        members=[
            v1.GroupMember(
                name=it.name,
                number=it.number,
                waiting=it.waiting,
                leases=it.leases,
                oldest_ms=round(it.oldest_s * 1000),
                owns=it.owns,
                ran_out=it.ran_out,
            )
            for it in view.members
        ],
        redelivered=view.redelivered,
        limit=_encoded_limit(group.limit),
        dying=len(group.dying),
        trouble=view.trouble,
        dead=view.dead,
        expired=view.expired,
        seen_tick=view.seen,
        lag=_encoded_lag(view.lag),
        mode=encoded_mode(group.mode),
        first=encoded_first(view.first),
        held=[encoded_held(it) for it in view.held[:spans_max]],
    )
