"""Whether a process can serve now, and why not; for /readyz and grpc.health.v1."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from actors import ActorStatistics
from broker.app.actor_lookup import MEMBERSHIP
from broker.coordinator.leases.leadership import LedStore

STARTING = "starting: logs are being recovered, or processes are missing; the log says which"
STOPPING = "stopping: calls in progress are finished, new ones are refused"


def _none() -> Sequence[str]:
    return ()


@dataclass(slots=True)
class Readiness:
    """Changes as the process goes from start to end. `led`: None in a node.

    `of_role`: reasons that only this role has.
    """

    led: LedStore | None = None
    of_role: Callable[[], Sequence[str]] = _none
    started: bool = False
    stopping: bool = False

    def reasons_against(self) -> list[str]:
        """Why the process does not serve; empty when it does."""
        if self.stopping:
            return [STOPPING]
        reasons = [] if self.started else [STARTING]
        if self.led is not None and self.led.deposed:
            reasons.append("not the leader: a newer coordinator leads this cluster")
        return [*reasons, *self.of_role()]


def membership_problems(statistics: Iterable[ActorStatistics]) -> list[str]:
    """Why a node has no connection to its coordinator, by the state of its Membership."""
    for actor in statistics:
        if actor.path == MEMBERSHIP and actor.state == "running":
            if actor.extra.get("failures"):
                why = actor.extra.get("error", "")
                return [f"the coordinator does not renew this node's lease: {why}"]
            if not actor.extra.get("session"):
                return ["the coordinator has not registered this node"]
            return []
    return ["the node is not a member of its cluster now: its membership restarts"]
