"""Everything the table of metrics reads, looked at once for each scrape.

Owns what must be added up between scrapes: the counts of actors that come and go.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from actors import ActorStatistics, Clock
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.core.cluster.actor_kinds import kind_of, pchannel_in
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.model.damage import Damage
from broker.model.ids import TICK_LOGICAL_BITS
from broker.node.state.channel_meters import ChannelMeter, Meters
from broker.node.state.open_channels import OpenChannel, OpenChannels

Extra = Mapping[str, int | float | str]
KINDS_MAX = 100
"""Kinds of actors that get a name of their own in metrics; the rest is `other`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where figures come from; one per process."""

    statistics: Callable[[], Sequence[ActorStatistics]]
    channels: OpenChannels
    meters: Meters
    edge: EdgeMeters
    broadcasts: BroadcastMeters | None
    damages: Callable[[], Sequence[Damage]]
    connections: Callable[[], int]
    open_calls: Callable[[], int]
    clock: Clock


@dataclass(slots=True)
class ActorCounts:
    """Restarts, shed and handled messages of each kind, over all incarnations there were.

    What an incarnation did after the last look is lost with it: the sums are a little low.
    """

    restarts: Counter[str] = field(default_factory=Counter)
    shed: Counter[str] = field(default_factory=Counter)
    handled: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, ActorStatistics] = field(default_factory=dict)

    def add(self, statistics: Sequence[ActorStatistics], kind: Callable[[str], str]) -> None:
        """Take in what has come since the last look."""
        now = {entry.path: entry for entry in statistics}
        for path, entry in now.items():
            name, before = kind(path), self._seen.get(path)
            same = before is not None and before.term == entry.term
            known = before if before is not None and same else ActorStatistics(path, 0, "", "")
            self.shed[name] += max(0, entry.shed - known.shed)
            self.handled[name] += max(0, entry.handled - known.handled)
            self.restarts[name] += max(0, entry.restarts - (before.restarts if before else 0))
        self._seen = now


class View:
    """One look. `actors`: of each kind those that live now."""

    def __init__(self, sources: Sources, counts: ActorCounts) -> None:
        self.sources = sources
        self.counts = counts
        self.statistics = sources.statistics()
        self.now_ms = sources.clock.wall_ms()
        self.channels: list[OpenChannel] = sources.channels.all()
        self._names: dict[str, None] = {}
        counts.add(self.statistics, self.kind)

    def kind(self, path: str) -> str:
        """The actor's kind, of which there are few."""
        name = kind_of(path)
        if name not in self._names and len(self._names) >= KINDS_MAX:
            return "other"
        self._names[name] = None
        return name

    @cached_property
    def actors(self) -> Mapping[str, Sequence[ActorStatistics]]:
        found = defaultdict(list)
        for entry in self.statistics:
            found[self.kind(entry.path)].append(entry)
        return found

    def extras(self, kind: str) -> Iterator[tuple[str, Extra]]:
        """The pchannel and the own figures of each actor of a kind."""
        for entry in self.actors.get(kind, ()):
            if entry.extra:
                yield pchannel_in(entry.path), entry.extra

    def meters(self) -> Iterator[tuple[str, ChannelMeter]]:
        """The counts of each pchannel."""
        yield from self.sources.meters.all()

    def lag_s(self, tick: int) -> float:
        """How long ago a tick was; 0 for one that is not known."""
        return max(0.0, (self.now_ms - (tick >> TICK_LOGICAL_BITS)) / 1000) if tick else 0.0
