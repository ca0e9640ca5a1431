"""The actor tree of a node.

node (one_for_one)
├─ channels (one_for_one)      channel[name], added by the Directory at the first assignment
├─ directory                   beside the channels: its death closes none of them
├─ time_tick                   asks the Appenders for a tick every 200 ms
├─ truncation                  removes what retention allows and nobody holds
├─ lag_watch                   counts what consumer groups have not acknowledged
├─ reclamation                 gives back the space of what was dropped and purged
├─ purging                     purges vchannels
├─ retention_keeper            has what collections do not keep purged
├─ disk_watch                  refuses messages while the disk is full
├─ compactor                   removes superseded messages of compacted collections
└─ memory_watch                seals segments of collections while memory is short
"""

from actors import ChildSpec, MailboxSpec, Overflow, Strategy, SupervisorSpec
from broker.node.append.time_tick import TimeTickHeartbeat
from broker.node.channel_tree import RESTARTS_MAX
from broker.node.compaction.compactor import Compactor
from broker.node.directory import CHANNELS, Directory
from broker.node.groups.lag_watch import LagWatch
from broker.node.memory_watch import MemoryWatch
from broker.node.space.disk_watch import DiskWatch
from broker.node.space.purging import Purging
from broker.node.space.reclamation import Reclamation
from broker.node.space.retention_keeper import RetentionKeeper
from broker.node.state.node_runtime import NodeRuntime
from broker.node.truncation import Truncation


def node_spec(node: NodeRuntime) -> SupervisorSpec:
    """The subtree `node`; the Directory is found at `<parent>/node/directory`."""
    return SupervisorSpec(
        name="node",
        strategy=Strategy.ONE_FOR_ONE,
        children=(
            SupervisorSpec(name=CHANNELS, restarts_max=RESTARTS_MAX),
            ChildSpec(
                name="directory",
                build=lambda: Directory(node),
                mailbox=MailboxSpec(bound=4096, overflow=Overflow.BLOCK, batch_max=64),
            ),
            ChildSpec(
                name="time_tick",
                build=lambda: TimeTickHeartbeat(node),
                # Only timers come here, so the next one makes up for one that was shed.
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                name="truncation",
                build=lambda: Truncation(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                name="lag_watch",
                build=lambda: LagWatch(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                name="reclamation",
                build=lambda: Reclamation(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                name="purging",
                build=lambda: Purging(node),
                mailbox=MailboxSpec(bound=64, overflow=Overflow.FAIL, batch_max=1),
            ),
            ChildSpec(
                name="retention_keeper",
                build=lambda: RetentionKeeper(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            ChildSpec(
                name="disk_watch",
                build=lambda: DiskWatch(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
            _compactor_spec(node),
            ChildSpec(
                name="memory_watch",
                build=lambda: MemoryWatch(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
        ),
        restarts_max=20,
    )


def _compactor_spec(node: NodeRuntime) -> ChildSpec:
    mailbox = MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8)
    return ChildSpec(name="compactor", build=lambda: Compactor(node), mailbox=mailbox)
