"""What a pchannel knows of its consumer groups, shared by the actors that serve them.

The table outlives a Group: an acknowledgement that becomes durable after its Group died is applied
here all the same. A new term begins with the table that it folded from the log.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from actors import Ref
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.txn.txn_session import TxnSession
from broker.core.txn.txn_state import TxnState
from broker.model.groups.consumer_group import GroupKey, GroupLag, GroupView
from broker.model.ids import TimeTick
from broker.node.group_messages import KeeperMessage


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """`end_txn`: a transaction has ended; what it held comes again, for None if it committed."""

    describe: Callable[[], GroupView]
    end_txn: Callable[[Sequence[HeldAck] | None], None]


@dataclass(slots=True)
class GroupNotes:
    """What is known of a group beside the table, since its pchannel is open here.

    `redelivered` and `expired`: of lives of the Group that have ended. `left`: the closed tick when
    the last one ended. `raised`: the tick at which the floor of an idle group was raised last.
    """

    redelivered: int = 0
    expired: int = 0
    dead: int = 0
    left: TimeTick = TimeTick(0)
    raised: TimeTick = TimeTick(0)
    lag: GroupLag | None = None


NO_NOTES: Final = GroupNotes()


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
    notes: dict[GroupKey, GroupNotes] = field(default_factory=dict)
    unsettled: set[GroupKey] = field(default_factory=set)
    """Groups that are being created, altered, sought or dropped, by records not known to be stored.

    Until that is known none of them runs or is changed: it would go on from what is over then.
    """

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
        running, notes = self.running.get(key), self.notes.get(key, NO_NOTES)
        if running is None:
            view = GroupView(self.table.groups[key].snapshot())
        else:
            view = running.describe()
        return replace(
            view,
            trouble=self.troubles.get(key, ""),
            redelivered=notes.redelivered + view.redelivered,
            expired=notes.expired + view.expired,
            dead=notes.dead,
            seen=TimeTick(0) if running is not None else _seen(view.group.tick, notes),
            lag=notes.lag,
        )

    def raised(self, key: GroupKey, before: TimeTick) -> None:
        """The floor of an idle group was raised: that is no sign of life, but `before` was."""
        state = self.table.groups.get(key)
        if state is not None:
            notes = self.noted(key)
            notes.left, notes.raised = _seen(before, notes), state.tick

    def behind(self, key: GroupKey) -> tuple[int, int]:
        """How far a group is behind, to sort by: its age, then messages, as counted last."""
        lag = self.notes.get(key, NO_NOTES).lag
        return (0, 0) if lag is None else (lag.ms, lag.messages)

    def noted(self, key: GroupKey) -> GroupNotes:
        """The notes of a group that exists, to be changed."""
        return self.notes.setdefault(key, GroupNotes())

    def ended(self, key: GroupKey, running: RunningGroup, tick: TimeTick) -> None:
        """A life of the Group has ended; no-op if that was noted, or the group was dropped."""
        if self.running.get(key) is not running:
            return
        del self.running[key]
        if key in self.table.groups:
            view, notes = running.describe(), self.noted(key)
            notes.redelivered += view.redelivered
            notes.expired += view.expired
            notes.left = tick

    def drop_notes(self, key: GroupKey) -> None:
        """The group was dropped: a new one of this name begins anew."""
        self.notes.pop(key, None)
        self.troubles.pop(key, None)

    def figures(self) -> Mapping[str, int]:
        """How many groups there are, and how many of them have members or had some lately."""
        return {"groups": len(self.table.groups), "running": len(self.running)}


def _seen(changed: TimeTick, notes: GroupNotes) -> TimeTick:
    """When somebody was there, by the newest change of the group."""
    return max(notes.left, changed if changed > notes.raised else TimeTick(0))
