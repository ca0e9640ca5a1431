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
├─ storage_watch               refuses messages of collections beyond their limit of storage
├─ size_reader                 reads for it what logs held before it counted
├─ disk_watch                  refuses messages while the disk is full
├─ compactor                   removes superseded messages of compacted collections
├─ memory_watch                seals segments of collections while memory is short
└─ wal_switcher                moves logs to another driver, when that is asked for
"""

from collections.abc import Callable
from typing import Any

from actors import Actor, ChildSpec, MailboxSpec, Overflow, Strategy, SupervisorSpec
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
from broker.node.space.size_reader import SizeReader
from broker.node.space.storage_watch import StorageWatch
from broker.node.state.node_runtime import NodeRuntime
from broker.node.truncation import Truncation
from broker.node.wal_switcher import WalSwitcher


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
            _on_timers("time_tick", lambda: TimeTickHeartbeat(node)),
            _on_timers("truncation", lambda: Truncation(node)),
            _on_timers("lag_watch", lambda: LagWatch(node)),
            _on_timers("reclamation", lambda: Reclamation(node)),
            ChildSpec(
                name="purging",
                build=lambda: Purging(node),
                mailbox=MailboxSpec(bound=64, overflow=Overflow.FAIL, batch_max=1),
            ),
            _on_timers("retention_keeper", lambda: RetentionKeeper(node)),
            _on_timers("storage_watch", lambda: StorageWatch(node)),
            _on_timers("size_reader", lambda: SizeReader(node)),
            _on_timers("disk_watch", lambda: DiskWatch(node)),
            _on_timers("compactor", lambda: Compactor(node)),
            _on_timers("memory_watch", lambda: MemoryWatch(node)),
            _on_timers("wal_switcher", lambda: WalSwitcher(node)),
        ),
        restarts_max=20,
    )


def _on_timers(name: str, build: Callable[[], Actor[Any]]) -> ChildSpec:
    """An actor that only timers wake: the next one makes up for one that was shed."""
    return ChildSpec(name, build, MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8))
