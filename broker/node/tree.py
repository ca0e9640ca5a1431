"""The actor tree of a node.

node (one_for_one)
├─ channels (one_for_one)      channel[name], added by the Directory at the first assignment
├─ directory                   beside the channels: its death closes none of them
├─ time_tick                   asks the Appenders for a tick every 200 ms
├─ truncation                  removes what retention allows and nobody holds
├─ lag_watch                   counts what consumer groups have not acknowledged
└─ memory_watch                seals segments of collections while memory is short
"""

from actors import ChildSpec, MailboxSpec, Overflow, Strategy, SupervisorSpec
from broker.node.append.time_tick import TimeTickHeartbeat
from broker.node.channel_tree import RESTARTS_MAX
from broker.node.directory import CHANNELS, Directory
from broker.node.groups.lag_watch import LagWatch
from broker.node.memory_watch import MemoryWatch
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
                name="memory_watch",
                build=lambda: MemoryWatch(node),
                mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED, batch_max=8),
            ),
        ),
        restarts_max=20,
    )
