"""The component states of early Milvus, from the states of the actors that do the work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class ComponentCode(IntEnum):
    """Numbers of Milvus's `StateCode`."""

    INITIALIZING = 0
    HEALTHY = 1
    ABNORMAL = 2


@dataclass(frozen=True, slots=True)
class Component:
    """One part and its state; `cause` says why it is not healthy."""

    name: str
    code: ComponentCode
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ActorState:
    """What the runtime says of one actor: its state, its newest error, and its term."""

    state: str
    error: str = ""
    term: int = 1


PARTS: Final[Mapping[str, str]] = {
    "timestamp_oracle": "/root/coordinator/oracle",
    "timestamp_window": "/root/coordinator/window",
    "id_allocator": "/root/master/ids",
    "meta_table": "/root/coordinator/catalog",
    "members": "/root/master/members",
    "segment_manager": "/root/master/segments",
    "dd_scheduler": "/root/coordinator/broadcaster/locks",
    "proxy_time_ticks": "/root/master/time_ticks/proxies",
    "proxy_time_ticks_sender": "/root/master/time_ticks/proxies_sender",
    "write_node_time_ticks": "/root/master/time_ticks/write_nodes",
    "write_node_time_ticks_sender": "/root/master/time_ticks/write_nodes_sender",
}
"""The actor of each component."""

RUNNING: Final = "running"
STARTING: Final = "starting"


def components(actors: Mapping[str, ActorState]) -> tuple[Component, ...]:
    """The state of each part, by the actors at their paths; a part without an actor is left out."""
    return tuple([_component(name, actors[path]) for name, path in PARTS.items() if path in actors])


def overall(parts: Sequence[Component], *, starting: bool, reasons: Sequence[str]) -> Component:
    """The worst of the parts and of the process. `reasons`: why the process does not serve."""
    name = "master"
    abnormal = [f"{it.name}: {it.cause}" for it in parts if it.code is ComponentCode.ABNORMAL]
    abnormal += reasons
    if abnormal and not starting:
        return Component(name, ComponentCode.ABNORMAL, "; ".join(abnormal))
    late = [it.name for it in parts if it.code is ComponentCode.INITIALIZING]
    if starting or late:
        cause = ", ".join([*late, *abnormal]) or "the process is starting"
        return Component(name, ComponentCode.INITIALIZING, cause)
    return Component(name, ComponentCode.HEALTHY)


def _component(name: str, actor: ActorState) -> Component:
    if actor.state == RUNNING:
        # What it says of its own work: a tick that a channel refuses, say.
        code = ComponentCode.ABNORMAL if actor.error else ComponentCode.HEALTHY
        return Component(name, code, actor.error)
    if actor.state == STARTING and actor.term <= 1:
        return Component(name, ComponentCode.INITIALIZING, "it is starting")
    cause = f"it is {actor.state}" + (f": {actor.error}" if actor.error else "")
    return Component(name, ComponentCode.ABNORMAL, cause)
