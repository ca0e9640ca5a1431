"""The forms of a permission: who may make a call, and what the request must be allowed to use."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from broker.core.naming import is_physical
from broker.core.security.grants import SEE, Action, Resource, ResourceKind
from broker.edge.rpc.access.access import Actions
from broker.edge.rpc.access.collection_names import CollectionNames

Names = Callable[[Any], Iterable[str]]
Find = Callable[[Any, CollectionNames], Awaitable[Iterable[Resource]]]


class Who(Enum):
    """Who may make a call. The values are the words of the generated page."""

    ANYBODY = "anybody"
    SIGNED_IN = "everybody with a proof"
    PROCESS = "processes of the cluster"
    GRANTED = "by grants"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of the actions must be allowed on each thing that the request names.

    `of`: which names of the request, for the page. `kinds`: the kinds of grants that allow it.
    `at_times`: only some requests need it, which `of` tells.
    """

    actions: Actions
    kinds: tuple[ResourceKind, ...]
    of: str
    find: Find
    at_times: bool = False


@dataclass(frozen=True, slots=True)
class Permission:
    """`inside`: what the service itself asks for, because requests come in a stream or are deep.

    `shows`: the answer is a list of what the caller may do anything with, and of nothing else.
    """

    who: Who
    needs: tuple[Requirement, ...] = ()
    inside: tuple[Requirement, ...] = ()
    shows: tuple[ResourceKind, ...] = ()


ANYBODY: Final = Permission(Who.ANYBODY)
SIGNED_IN: Final = Permission(Who.SIGNED_IN)
PROCESS: Final = Permission(Who.PROCESS)
CHANNELS: Final = (ResourceKind.COLLECTION, ResourceKind.CHANNEL)


def granted(*needs: Requirement) -> Permission:
    """Everything that is needed must be allowed."""
    return Permission(Who.GRANTED, needs)


def inside(*needs: Requirement) -> Permission:
    """The service asks; the call itself needs a proof of who makes it."""
    return Permission(Who.SIGNED_IN, inside=needs)


def listed(*kinds: ResourceKind, needs: tuple[Requirement, ...] = ()) -> Permission:
    """Everybody with a proof may list; the service shows what they see of these kinds."""
    return Permission(Who.GRANTED if needs else Who.SIGNED_IN, needs, shows=kinds)


def on_cluster(
    action: Action, when: Callable[[Any], bool] | None = None, of: str = ""
) -> Requirement:
    """The action on the whole cluster; only for requests of which `when` is true."""

    async def find(request: Any, names: CollectionNames) -> Iterable[Resource]:
        return (names.cluster,) if when is None or when(request) else ()

    at_times = when is not None
    return Requirement(frozenset({action}), (ResourceKind.CLUSTER,), of, find, at_times)


def on_collection(
    action: Action | None, names_of: Names, of: str = "its collection"
) -> Requirement:
    """The action on collections by their names; None: any action, which is to see them."""

    async def find(request: Any, _: CollectionNames) -> Iterable[Resource]:
        return [Resource(ResourceKind.COLLECTION, it) for it in names_of(request)]

    return Requirement(_actions(action), (ResourceKind.COLLECTION,), of, find)


def on_collection_id(action: Action | None, id_of: Callable[[Any], int]) -> Requirement:
    """The action on a collection by its id; 0 names none."""

    async def find(request: Any, names: CollectionNames) -> Iterable[Resource]:
        id = id_of(request)
        return (await names.by_id(id),) if id else ()

    return Requirement(
        _actions(action), (ResourceKind.COLLECTION,), "the collection of its id", find
    )


def on_channels(action: Action | None, names_of: Names, of: str = "its channels") -> Requirement:
    """The action on channels, by their names or their collections'.

    Everybody with a proof sees pchannels: the assignment table names them, and no content.
    """

    async def find(request: Any, names: CollectionNames) -> Iterable[Resource]:
        wanted = [it for it in names_of(request) if action is not None or not is_physical(it)]
        return [await names.channel(it) for it in wanted]

    return Requirement(_actions(action), CHANNELS, of, find)


def on_target(names_of: Names) -> Requirement:
    """To see what a name stands for: a collection or a channel."""

    async def find(request: Any, names: CollectionNames) -> Iterable[Resource]:
        return [await names.target(it) for it in names_of(request)]

    return Requirement(SEE, CHANNELS, "its name", find)


def on_cursor(*actions: Action) -> Requirement:
    """One of the actions on the cursor that the request names."""

    async def find(request: Any, _: CollectionNames) -> Iterable[Resource]:
        return (Resource(ResourceKind.CURSOR, request.name),)

    return Requirement(frozenset(actions), (ResourceKind.CURSOR,), "its cursor", find)


def on_group(action: Action) -> Requirement:
    """The action on the group that the request names."""

    async def find(request: Any, _: CollectionNames) -> Iterable[Resource]:
        return (Resource(ResourceKind.GROUP, request.group),)

    return Requirement(frozenset({action}), (ResourceKind.GROUP,), "its group", find)


def _actions(action: Action | None) -> Actions:
    return SEE if action is None else frozenset({action})
