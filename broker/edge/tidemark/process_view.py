"""What the admin service can see of its process, and do to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors import System
from broker.model.damage import Damage
from broker.model.traffic import VChannelTraffic


@dataclass(frozen=True, slots=True)
class ProcessView:
    """`tree`: the live actors; `chaos_allowed`: whether callers may kill them.

    `reasons_against`: why the process does not serve now; empty when it does. `warnings`: what an
    operator should look at although it serves.
    """

    tree: System
    chaos_allowed: bool = False
    damages: Callable[[], Sequence[Damage]] = tuple
    damages_unlisted: Callable[[], int] = int
    reasons_against: Callable[[], Sequence[str]] = tuple
    warnings: Callable[[], Sequence[str]] = tuple
    traffic: Callable[[], Sequence[VChannelTraffic]] = tuple
