"""Reads everything that the table of metrics needs, once for each scrape.

Counts of actors are added up between scrapes, because actors come and go.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from typing import Final

from actors import ActorStatistics, Clock
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.core.cluster.actor_kinds import kind_of, pchannel_in
from broker.core.groups.schedule_name import SCHEDULE
from broker.core.pressure.storage_use import StorageBook
from broker.edge.rpc.audit.audit_sink import AuditFigures
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.metrics.process_figures import ProcessFigures
from broker.model.damage import Damage
from broker.model.groups.consumer_group import GroupView
from broker.model.ids import TICK_LOGICAL_BITS, PChannelName
from broker.node.state.channel_meters import ChannelMeter, Meters
from broker.node.state.open_channels import OpenChannel, OpenChannels
from broker.timesync.cursor_places import CursorPlaces
from broker.timesync.holds.ledger import HeldFigures

Extra = Mapping[str, int | float | str]
GROUPS_MAX: Final = 1000
"""Groups on vchannels with series of their own: those furthest behind."""
KINDS_MAX = 100
"""Kinds of actors with a label of their own; the others share the label `other`."""


@dataclass(frozen=True, slots=True)
class CoordinatorFigures:
    """What the parts of a coordinator count, and where they have seen the cursors and holders."""

    broadcasts: BroadcastMeters = field(default_factory=BroadcastMeters)
    cursors: CursorPlaces = field(default_factory=CursorPlaces)
    held: HeldFigures = field(default_factory=HeldFigures)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the metrics of a process are read."""

    statistics: Callable[[], Sequence[ActorStatistics]]
    channels: OpenChannels
    meters: Meters
    edge: EdgeMeters
    coordinator: CoordinatorFigures | None
    damages: Callable[[], Sequence[Damage]]
    connections: Callable[[], int]
    open_calls: Callable[[], int]
    process: Callable[[], ProcessFigures]
    clock: Clock
    certificate_ends_s: Callable[[], float | None] = lambda: None
    """When the certificate of this process ends, in Unix seconds; None without TLS."""
    audit: Callable[[], AuditFigures] = AuditFigures
    storage: StorageBook = field(default_factory=StorageBook)
    leads: Callable[[], bool] | None = None
    """Whether this coordinator leads; None in a process that is no coordinator."""


@dataclass(slots=True)
class ActorCounts:
    """Restarts, shed and handled messages of each kind of actor, over all incarnations.

    What an incarnation did between the last scrape and its end is lost, so sums are a little low.
    """

    restarts: Counter[str] = field(default_factory=Counter)
    shed: Counter[str] = field(default_factory=Counter)
    handled: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, ActorStatistics] = field(default_factory=dict)

    def add(self, statistics: Sequence[ActorStatistics], kind: Callable[[str], str]) -> None:
        """Add what has changed since the last scrape."""
        now = {entry.path: entry for entry in statistics}
        for path, entry in now.items():
            name, before = kind(path), self._seen.get(path)
            same = before is not None and before.term == entry.term
            # A new incarnation counts from 0 again.
            known = before if before is not None and same else ActorStatistics(path, 0, "", "")
            self.shed[name] += max(0, entry.shed - known.shed)
            self.handled[name] += max(0, entry.handled - known.handled)
            # Restarts are counted by path, over incarnations: compare with any earlier entry.
            self.restarts[name] += max(0, entry.restarts - (before.restarts if before else 0))
        self._seen = now


class View:
    """The values of one scrape. `actors`: the living ones, by kind."""

    def __init__(self, sources: Sources, counts: ActorCounts) -> None:
        self.sources = sources
        self.counts = counts
        self.statistics = sources.statistics()
        self.now_ms = sources.clock.wall_ms()
        self.process = sources.process()
        self.channels: list[OpenChannel] = sources.channels.all()
        self._names: dict[str, None] = {}
        counts.add(self.statistics, self.kind)

    def kind(self, path: str) -> str:
        """The kind of an actor, as in labels."""
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

    @cached_property
    def groups(self) -> Sequence[tuple[PChannelName, GroupView]]:
        """The consumer groups that have series of their own, each with its pchannel."""
        found = [
            (channel, key)
            for channel in self.channels
            for key in channel.groups.table.groups
            if key.name != SCHEDULE
        ]
        shown = nlargest(GROUPS_MAX, found, key=lambda it: it[0].groups.behind(it[1]))
        return [(channel.channel.name, channel.groups.view(key)) for channel, key in shown]

    def extras(self, kind: str) -> Iterator[tuple[str, Extra]]:
        """The pchannel and the extra statistics of each actor of a kind."""
        for entry in self.actors.get(kind, ()):
            if entry.extra:
                yield pchannel_in(entry.path), entry.extra

    def meters(self) -> Iterator[tuple[str, ChannelMeter]]:
        """The meter of each pchannel."""
        yield from self.sources.meters.all()

    def lag_s(self, tick: int) -> float:
        """The age of a tick; 0 for tick 0, which means unknown."""
        return max(0.0, (self.now_ms - (tick >> TICK_LOGICAL_BITS)) / 1000) if tick else 0.0
