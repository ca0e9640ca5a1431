"""The subtree of the master, built from what it needs.

master (one_for_one)
├─ adopter        announces collections of an earlier release
├─ ids            gives out ids
├─ members        tenants and proxies
├─ segment_reader what there is of segments
├─ segments       reservations, statistics, drops and flushes of segments
├─ table          databases, collections, partitions, aliases, indexes
└─ time_ticks     ticks of proxies and write nodes, to channels
"""

from collections.abc import Sequence
from dataclasses import dataclass

from actors import ONE_FOR_ONE, ChildSpec, MailboxSpec, SupervisorSpec
from broker.master.ddl.adopter import Adopter, AdoptionParts
from broker.master.ids.id_allocator import IdAllocator
from broker.master.members.member_table import MemberTable
from broker.master.segments.segment_keeper import SegmentKeeper, SegmentParts
from broker.master.segments.segment_reader import SegmentReader
from broker.master.table.meta_table import MetaTable
from broker.master.time_ticks.tree import time_ticks_tree
from broker.model.ids import PChannelName
from broker.ports.meta import MetaStore
from broker.ports.tick_appends import TickAppends

MASTER = "master"
ADOPTER = "adopter"
IDS = "ids"
MEMBERS = "members"
SEGMENT_READER = "segment_reader"
SEGMENTS = "segments"
TABLE = "table"


@dataclass(frozen=True, slots=True)
class MasterParts:
    """Dependencies. `store`: written under the leader's term. `pchannels`: all of the cluster.

    `tick_appends` None: time ticks are not served. `segments` None: they are not kept. `adoption`
    None: collections of an earlier release stay as they are.
    """

    store: MetaStore
    pchannels: Sequence[PChannelName] = ()
    tick_appends: TickAppends | None = None
    segments: SegmentParts | None = None
    adoption: AdoptionParts | None = None


def master_tree(parts: MasterParts, parent_path: str) -> SupervisorSpec:
    """The subtree `master`, for the supervisor at `parent_path`.

    Its actors are patient: they wait for a store that is away.
    """
    path = f"{parent_path}/{MASTER}"
    return SupervisorSpec(
        name=MASTER,
        strategy=ONE_FOR_ONE,
        children=(
            ChildSpec(
                IDS,
                lambda: IdAllocator(parts.store),
                MailboxSpec(bound=4096, batch_max=256),
                patient=True,
            ),
            ChildSpec(
                MEMBERS, lambda: MemberTable(parts.store), MailboxSpec(bound=256), patient=True
            ),
            ChildSpec(
                TABLE,
                lambda: MetaTable(parts.store),
                MailboxSpec(bound=16_384, batch_max=256),
                patient=True,
            ),
            *_time_ticks(parts, path),
            *_segments(parts.segments),
            *_adopter(parts.adoption),
        ),
    )


def _time_ticks(parts: MasterParts, path: str) -> tuple[SupervisorSpec, ...]:
    if parts.tick_appends is None:
        return ()
    return (time_ticks_tree(parts.store, parts.tick_appends, parts.pchannels, path),)


def _adopter(parts: AdoptionParts | None) -> tuple[ChildSpec, ...]:
    if parts is None:
        return ()
    return (ChildSpec(ADOPTER, lambda: Adopter(parts), MailboxSpec(bound=16), patient=True),)


def _segments(parts: SegmentParts | None) -> tuple[ChildSpec, ...]:
    if parts is None:
        return ()
    return (
        ChildSpec(
            SEGMENT_READER,
            lambda: SegmentReader(parts.store, parts.lookup),
            MailboxSpec(bound=1024),
            patient=True,
        ),
        ChildSpec(SEGMENTS, lambda: SegmentKeeper(parts), MailboxSpec(bound=1024), patient=True),
    )
