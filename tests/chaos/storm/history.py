"""What a storm's clients did and saw: values that the checkers judge, and nothing else.

Times are seconds of the harness's clock. Payloads are unique: one payload is one message asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from broker.client import ResourceKey
from tests.chaos.storm.ddl_history import DdlHistory
from tests.chaos.storm.groups.group_history import GroupHistory
from tests.chaos.storm.purging.purge_history import PurgeHistory

OF_BROADCASTS = "told"
"""The partition of their copies, of which a log may hold two."""


class Outcome(Enum):
    """What a client was told. ABSENT: refused, rolled back or expired; nobody may ever see it."""

    ACKNOWLEDGED = "acknowledged"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Place(NamedTuple):
    vchannel: str
    id: int
    tick: int


class Seen(NamedTuple):
    """One message as a reader got it."""

    payload: bytes
    id: int
    tick: int
    term: int = 1


class PlacedRow(NamedTuple):
    """A row in the log, with the partition and the segment that its header names."""

    vchannel: str
    payload: bytes
    id: int
    partition: int
    segment: int


class SegmentSeen(NamedTuple):
    """Where the log says that a segment begins, or that it is flushed."""

    vchannel: str
    id: int
    segment: int
    partition: int
    rows_max: int
    flush: bool


class Listed(NamedTuple):
    """A flushed segment, as the master counts it."""

    vchannel: str
    segment: int
    partition: int
    rows: int


@dataclass(frozen=True, slots=True)
class Operation:
    """`places`: one for each payload; of a broadcast, one for each target. `end`: of a commit.

    What was staged is one for each vchannel, with no places; those of one `batch` belong together.
    `partition`: of its rows; "" where rows are not counted.
    """

    sort: str
    began_s: float
    ended_s: float
    outcome: Outcome
    targets: tuple[str, ...]
    payloads: tuple[bytes, ...]
    places: tuple[Place, ...] = ()
    keys: tuple[ResourceKey, ...] = ()
    end: Place | None = None
    error: str = ""
    batch: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the client; `ended_s` is None when the harness had to give it up."""

    sort: str
    began_s: float
    deadline_s: float
    ended_s: float | None


@dataclass(frozen=True, slots=True)
class CutTaken:
    began_s: float
    ended_s: float
    vchannels: tuple[str, ...]
    tick: int


class Owned(NamedTuple):
    """The coordinator said that the node owns the pchannel at the term."""

    pchannel: str
    term: int
    node_id: int


@dataclass(slots=True)
class Reading:
    """One reader. `after_tick`: it was to see all with larger ticks; None: it began at `latest`.

    `until_tick`: it was to see no larger ones; 0: all. `only`: it was to see this sort alone.
    `bare`: it is not told terms. `closed`: how many messages had come when a tick was said to be
    closed. `to_the_end`: it has to have come as far as the final log, or until its tick.
    """

    name: str
    vchannel: str
    after_tick: int | None
    opened_s: float
    seen: list[Seen] = field(default_factory=list)
    closed: list[tuple[int, int]] = field(default_factory=list)
    to_the_end: bool = False
    error: str = ""
    until_tick: int = 0
    only: str = ""
    bare: bool = False

    def continued(self, tick: int) -> "Reading":
        """That of a reader that died behind this tick, and has resumed there.

        All up to the tick must have come by now. What was closed later stays so.
        """
        following = replace(
            self,
            after_tick=tick,
            seen=[],
            closed=[(0, closed) for _, closed in self.closed if closed > tick],
        )
        self.name, self.until_tick, self.to_the_end = f"{self.name} until {tick}", tick, True
        return following


@dataclass(slots=True)
class History:
    """`final`: each vchannel, read from its first message on when all was over.

    `ddl`: changes of definitions, which are no operations. `groups`: what their members did.
    `purges`: of vchannels that have nothing else.
    `placed`, `segments`: of the vchannels whose rows are counted, as their logs have them then;
    `listed`: what the master says; `partitions`: their names by id. `stall_s`: for so long the
    harness itself did not get to run; calls cannot end meanwhile.
    """

    operations: list[Operation] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    cuts: list[CutTaken] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    final: dict[str, list[Seen]] = field(default_factory=dict)
    placed: list[PlacedRow] = field(default_factory=list)
    segments: list[SegmentSeen] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    partitions: dict[int, str] = field(default_factory=dict)
    stall_s: float = 0.0
    ddl: DdlHistory = field(default_factory=DdlHistory)
    groups: GroupHistory = field(default_factory=GroupHistory)
    purges: PurgeHistory = field(default_factory=PurgeHistory)

    def sequences(self) -> Iterator[tuple[str, str, list[Seen]]]:
        """Everything that was read: by whom, of which vchannel, what."""
        for vchannel, messages in self.final.items():
            yield "the final log", vchannel, messages
        for reading in self.readings:
            yield f"reader {reading.name}", reading.vchannel, reading.seen


def pchannel_of(vchannel: str) -> str:
    return vchannel.rpartition("_")[0]
