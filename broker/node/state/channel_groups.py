"""What a pchannel knows of its consumer groups, shared by the actors that serve them.

The table outlives a Group: an acknowledgement that becomes durable after its Group died is applied
here all the same. A new term begins with the table that it folded from the log.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors import Ref
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.txn.txn_session import TxnSession
from broker.core.txn.txn_state import TxnState
from broker.model.groups.consumer_group import GroupKey, GroupView
from broker.node.group_messages import KeeperMessage


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """`end_txn`: a transaction has ended; what it held comes again, for None if it committed."""

    describe: Callable[[], GroupView]
    end_txn: Callable[[Sequence[HeldAck] | None], None]


@dataclass(slots=True)
class ChannelGroups:
    """`table`: what is durable. `keeper`: set by the GroupKeeper when it starts."""

    table: GroupTable
    keeper: Ref[KeeperMessage] | None = None
    running: dict[GroupKey, RunningGroup] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    """How many delayed messages wait on each vchannel that has a schedule."""
    troubles: dict[GroupKey, str] = field(default_factory=dict)
    """Why the dead letters of a group cannot be written."""

    def end_txns(self, ended: Sequence[TxnSession]) -> None:
        """Apply what these transactions have acknowledged; their ends are durable.

        At once, before anything is answered or delivered: so whoever sees what a transaction
        appended finds its acknowledgements, too.
        """
        if not self.table.holding:
            return
        for session in ended:
            assert session.outcome is not None, "its end was placed"
            committed = session.state is TxnState.COMMITTED
            tick = session.outcome.tick if committed else None
            for key, held in self.table.end_txn(session.context.id, tick):
                group = self.running.get(key)
                if group is not None:
                    group.end_txn(None if committed else held)

    def view(self, key: GroupKey) -> GroupView:
        """The group, with its members if it runs. It must exist."""
        group, trouble = self.running.get(key), self.troubles.get(key, "")
        if group is not None:
            return replace(group.describe(), trouble=trouble)
        return GroupView(self.table.groups[key].snapshot(), trouble=trouble)

    def figures(self) -> Mapping[str, int]:
        """How many groups there are, and how many of them have members or had some lately."""
        return {"groups": len(self.table.groups), "running": len(self.running)}
