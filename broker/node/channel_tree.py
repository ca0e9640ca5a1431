"""The subtree of one pchannel.

    channel[name] (one_for_one)
    ├─ controller                      opens and closes `log`
    └─ log (rest_for_one)              one assignment; all restart with the Appender
       ├─ appender                     the single writer; its actor term is the pchannel's term
       ├─ scanners (one_for_one)       one for each consumer
       ├─ transactions (one_for_one)   one for each open transaction
       ├─ txn_monitor                  starts those and reports progress to them
       ├─ recovery                     saves the snapshot
       ├─ groups (one_for_one)         one for each consumer group with members
       └─ group_keeper                 creates groups, and starts those actors

Why each pchannel has a supervisor above `log`: a supervisor does nothing else while it starts a
child, and opening a log may take minutes. This way a pchannel waits only for itself.
"""

from actors import (
    Backoff,
    ChildSpec,
    MailboxSpec,
    Overflow,
    Restart,
    Strategy,
    SupervisorSpec,
)
from broker.core.log.delivery import Selection
from broker.model.channel import PChannel
from broker.model.ids import PChannelName
from broker.node.append.appender import Appender
from broker.node.channel_terms import ChannelTerms
from broker.node.groups.group_keeper import GROUP_KEEPER, GROUPS, GroupKeeper
from broker.node.recovery.recovery import Recovery
from broker.node.scanner import Scanner
from broker.node.state.node_runtime import NodeRuntime
from broker.node.txn.txn_monitor import TRANSACTIONS, TXN_MONITOR, TxnMonitor

LOG = "log"
SCANNERS = "scanners"
LOG_RESTARTS_MAX = 20
"""In 30 s: an Appender may die so often before its whole subtree is rebuilt."""

RESTARTS_MAX = 10_000
"""A pchannel that keeps failing is retried for ever and must not take the others down."""

OPEN_DEADLINE_S = 300.0
"""Opening replays the log behind the snapshot, which may be long and on a slow disk."""


def log_spec(channel: PChannel, node: NodeRuntime, *, again: bool = False) -> SupervisorSpec:
    """The `log` subtree of a pchannel assigned to this node at its term.

    `again`: it was open at that term before, so it opens at the next one.
    """
    name, session = channel.name, node.write_lease.session
    appender = ChildSpec(
        name="appender",
        # Of this session for good: what restarts here while a later session begins must not write.
        build=lambda: Appender(channel, node, session),
        mailbox=MailboxSpec(
            bound=node.limits.backlog_batches_max,
            overflow=Overflow.FAIL,  # back-pressure: the producer is refused, never blocked
            batch_max=node.limits.backlog_batches_max,  # everything waiting is one group
        ),
        # When fenced it stops itself, and must not come back.
        restart=Restart.TRANSIENT,
        terms=ChannelTerms(channel, node, used=again),
        start_deadline_s=OPEN_DEADLINE_S,
        # Failed starts are retried without limit: a full disk may last for hours.
        patient=True,
    )
    scanners = SupervisorSpec(name=SCANNERS, strategy=Strategy.ONE_FOR_ONE, restarts_max=1000)
    transactions = SupervisorSpec(
        name=TRANSACTIONS, strategy=Strategy.ONE_FOR_ONE, restarts_max=1000
    )
    txn_monitor = ChildSpec(
        name=TXN_MONITOR,
        build=lambda: TxnMonitor(name, node),
        # Reports may be lost: it sees that some were shed, and asks for all transactions.
        mailbox=MailboxSpec(bound=1024, overflow=Overflow.SHED, batch_max=1024),
    )
    recovery = ChildSpec(
        name="recovery",
        build=lambda: Recovery(name, node),
        mailbox=MailboxSpec(bound=8, overflow=Overflow.SHED),
        # It stops itself when a newer owner has claimed the snapshot.
        restart=Restart.TRANSIENT,
        # Longer than the last save may take, so that the save ends by its own limit.
        stop_deadline_s=node.limits.snapshot_flush_s + 1.0,
    )
    groups = SupervisorSpec(name=GROUPS, strategy=Strategy.ONE_FOR_ONE, restarts_max=1000)
    group_keeper = ChildSpec(
        name=GROUP_KEEPER,
        build=lambda: GroupKeeper(name, node),
        mailbox=MailboxSpec(bound=1024, overflow=Overflow.FAIL, batch_max=64),
    )
    return SupervisorSpec(
        name=LOG,
        strategy=Strategy.REST_FOR_ONE,
        # In this order: whatever stands behind the Appender restarts with it, at its new term.
        children=(appender, scanners, transactions, txn_monitor, recovery, groups, group_keeper),
        restarts_max=LOG_RESTARTS_MAX,
        backoff=Backoff(first_s=0.05, max_s=5.0),
    )


def scanner_spec(
    number: int,
    name: PChannelName,
    selection: Selection,
    node: NodeRuntime,
    *,
    ignores_pause: bool = False,
) -> ChildSpec:
    """One consumer's Scanner. It keeps no position, so a restart loses nothing."""
    return ChildSpec(
        name=f"scanner-{number}",
        build=lambda: Scanner(name, selection, node, ignores_pause=ignores_pause),
        mailbox=MailboxSpec(bound=16, overflow=Overflow.FAIL, batch_max=16),
        restart=Restart.TRANSIENT,
    )
