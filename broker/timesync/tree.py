"""The subtree of time synchronisation, built from what it needs.

timesync (one_for_one)
├─ soft_barrier
├─ hard_barrier
├─ cursors
├─ cursor_watch      looks where the cursors are, for metrics
└─ tick_producer     feeds the soft barrier with the closed ticks of all pchannels
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors import ONE_FOR_ONE, ChildSpec, MailboxSpec, Overflow, SupervisorSpec
from broker.model.ids import PChannelName
from broker.model.retention.policy import HoldLimits
from broker.ports.closed_ticks import ClosedTicks
from broker.ports.meta import MetaStore
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.timesync.cursor_places import CursorPlaces, CursorWatch
from broker.timesync.cursors import Cursors
from broker.timesync.hard_barrier import HardBarrier
from broker.timesync.holds.ledger import HeldFigures, HoldRule
from broker.timesync.soft_barrier import SoftBarrier
from broker.timesync.tick_producer import TickProducer
from broker.timesync.timing import TimesyncTiming

TIMESYNC = "timesync"
SOFT_BARRIER = "soft_barrier"
HARD_BARRIER = "hard_barrier"
CURSORS = "cursors"
CURSOR_WATCH = "cursor_watch"
TICK_PRODUCER = "tick_producer"


@dataclass(frozen=True, slots=True)
class TimesyncParts:
    """Dependencies. `pchannels`: all of the cluster. `places`: filled with where cursors are.

    `store` keeps the cursors; it is written under the leader's term.
    """

    store: MetaStore
    source: ClosedTicks
    pchannels: Sequence[PChannelName]
    timing: TimesyncTiming = field(default_factory=TimesyncTiming)
    collections: RowSchemas = field(default_factory=NoRowSchemas)
    places: CursorPlaces = field(default_factory=CursorPlaces)
    holds: HoldRule = field(default_factory=lambda: HoldRule(HoldLimits()))
    held: HeldFigures = field(default_factory=HeldFigures)
    poll_s: Callable[[], float] | None = None
    """In place of the one in `timing`, where it may change."""


def timesync_tree(parts: TimesyncParts, parent_path: str) -> SupervisorSpec:
    """The subtree `timesync`, for the supervisor at `parent_path`."""
    path = f"{parent_path}/{TIMESYNC}"
    mailbox = MailboxSpec(bound=8192, batch_max=1024)
    return SupervisorSpec(
        name=TIMESYNC,
        strategy=ONE_FOR_ONE,
        children=(
            ChildSpec(SOFT_BARRIER, lambda: SoftBarrier(parts.pchannels, parts.timing), mailbox),
            ChildSpec(HARD_BARRIER, HardBarrier, mailbox),
            ChildSpec(
                CURSORS,
                lambda: Cursors(
                    parts.store, parts.source, parts.pchannels, parts.holds, parts.held
                ),
                MailboxSpec(bound=1024),
            ),
            ChildSpec(
                CURSOR_WATCH,
                lambda: CursorWatch(parts.store, parts.collections, parts.places),
                MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                TICK_PRODUCER,
                lambda: TickProducer(
                    parts.source,
                    f"{path}/{SOFT_BARRIER}",
                    f"{path}/{HARD_BARRIER}",
                    parts.poll_s or (lambda: parts.timing.poll_s),
                ),
                # Timers that fire during a slow poll may be lost: one poll serves them all.
                MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
        ),
        restarts_max=20,
    )
