"""What the admin service can see of its process, and do to it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from actors import System
from broker.model.damage import Damage
from broker.model.traffic import VChannelTraffic


@dataclass(frozen=True, slots=True)
class Coordinators:
    """The addresses of those of one cluster. `leader`: "" for none; empty for a node."""

    leader: str = ""
    standbys: Sequence[str] = ()


async def _none() -> Coordinators:
    return Coordinators()


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ProcessView:
    """`tree`: the live actors; `chaos_allowed`: whether callers may kill them.

    `reasons_against`: why the process does not serve now; empty when it does. `warnings`: what an
    operator should look at although it serves. `leads`: False in a leader that may not answer now;
    one that only stands by says so by its state.
    """

    tree: System
    chaos_allowed: bool = False
    damages: Callable[[], Sequence[Damage]] = tuple
    damages_unlisted: Callable[[], int] = int
    reasons_against: Callable[[], Sequence[str]] = tuple
    warnings: Callable[[], Sequence[str]] = tuple
    traffic: Callable[[], Sequence[VChannelTraffic]] = tuple
    coordinators: Callable[[], Awaitable[Coordinators]] = _none
    leads: Callable[[], bool] = _always

    def with_coordinators(
        self,
        coordinators: Callable[[], Awaitable[Coordinators]],
        leads: Callable[[], bool] = _always,
    ) -> "ProcessView":
        """The view of a coordinator that others stand by for, or that stands by."""
        return replace(self, coordinators=coordinators, leads=leads)
