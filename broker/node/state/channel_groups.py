"""What a pchannel knows of its consumer groups, shared by the actors that serve them.

The table outlives a Group: an acknowledgement that becomes durable after its Group died is applied
here all the same. A new term begins with the table that it folded from the log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors import Ref
from broker.core.groups.group_table import GroupTable
from broker.model.groups.consumer_group import GroupKey, GroupView
from broker.node.group_messages import KeeperMessage

Describe = Callable[[], GroupView]


@dataclass(slots=True)
class ChannelGroups:
    """`table`: what is durable. `keeper`: set by the GroupKeeper when it starts."""

    table: GroupTable
    keeper: Ref[KeeperMessage] | None = None
    running: dict[GroupKey, Describe] = field(default_factory=dict)
    """How running Groups describe themselves."""

    def view(self, key: GroupKey) -> GroupView:
        """The group, with its members if it runs. It must exist."""
        describe = self.running.get(key)
        return GroupView(self.table.groups[key].snapshot()) if describe is None else describe()

    def figures(self) -> Mapping[str, int]:
        """How many groups there are, and how many of them have members or had some lately."""
        return {"groups": len(self.table.groups), "running": len(self.running)}
