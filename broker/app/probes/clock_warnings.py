"""Whether the clock of a leading coordinator's host is behind its ticks, for `health`."""

from collections.abc import Iterable

from actors import ActorStatistics
from broker.app.actor_lookup import ORACLE
from broker.core.time.clock_difference import leader_warning


def leader_clock_warnings(statistics: Iterable[ActorStatistics]) -> list[str]:
    """A sentence while the oracle of this process is seconds ahead of the clock."""
    told = [
        leader_warning(int(actor.extra.get("ahead_ms", 0)))
        for actor in statistics
        if actor.path == ORACLE and actor.state == "running"
    ]
    return [it for it in told if it]
