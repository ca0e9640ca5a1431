"""What a pchannel knows of its consumer groups, shared by the actors that serve them.

The table outlives a Group: an acknowledgement that becomes durable after its Group died is applied
here all the same. A new term begins with the table that it folded from the log.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from actors import Ref
from broker.core.groups.group_rules import GROUPS_MAX
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.naming import pchannel_of
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_lease import lease_end
from broker.core.txn.txn_session import TxnSession
from broker.core.txn.txn_state import TxnState
from broker.model.failure import Refused, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupLag, GroupView
from broker.model.groups.unsettled import HeldByTxn
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick, TxnId
from broker.model.stage import StageName
from broker.node.group_messages import KeeperMessage

HELD_MS: Final = 60_000
"""So long after its begin a transaction that holds acknowledgements is worth a warning."""
WARNINGS_MAX: Final = 8
"""Of a pchannel and a kind."""
LANDED_S: Final = 1.0
"""So long a Group waits when it begins. Its supervisor starts and stops no other one meanwhile."""

AgeOf = Callable[[StageName | None], int]


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
    transactions: Transactions
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
    coming: Counter[GroupKey] = field(default_factory=Counter)
    """Groups whose creation was asked for and not answered."""
    in_flight: Counter[GroupKey] = field(default_factory=Counter)
    """Changes that running groups have sent, and that are not known to be stored or refused."""
    _landed: dict[GroupKey, anyio.Event] = field(default_factory=dict)

    @contextmanager
    def creating(self, key: GroupKey) -> Iterator[None]:
        """Count a creation that was asked for, until the block ends.

        Raises Refused for one of more groups than there may be: they are made one after the other,
        and it would hear that only at its turn.
        """
        self.coming[key] += 1
        try:
            groups = self.table.groups
            if key not in groups and len(groups) + len(self.coming) > GROUPS_MAX:
                new = sum([it not in groups for it in self.coming])
                if len(groups) + new > GROUPS_MAX:
                    raise Refused(StreamingCode.RESOURCE_ACQUIRED, _full(key, len(groups), new))
            yield
        finally:
            self.coming[key] -= 1
            if not self.coming[key]:
                del self.coming[key]

    def sent(self, key: GroupKey) -> None:
        """A change of a running group was sent; call `landed` when its outcome is known."""
        self.in_flight[key] += 1

    def landed(self, key: GroupKey) -> None:
        """The outcome of one that was sent is known, and in the table if it was stored."""
        self.in_flight[key] -= 1
        if not self.in_flight[key]:
            del self.in_flight[key]
            if (waits := self._landed.pop(key, None)) is not None:
                waits.set()

    async def all_landed(self, key: GroupKey) -> None:
        """Wait until no change of the group is in flight, so that the table has what is decided.

        Raises Refused after `LANDED_S`.
        """
        if key not in self.in_flight:
            return
        try:
            with anyio.fail_after(LANDED_S):
                await self._landed.setdefault(key, anyio.Event()).wait()
        except TimeoutError as error:
            raise Refused(StreamingCode.INNER, _in_flight(key)) from error

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
            held=self._held(key),
        )

    def _held(self, key: GroupKey) -> tuple[HeldByTxn, ...]:
        """The transactions that acknowledge messages of the group, the oldest first."""
        ranges: dict[TxnId, int] = {}
        for it in self.table.groups[key].held:
            ranges[it.txn] = ranges.get(it.txn, 0) + len(it.spans)
        sessions = [self.transactions.find(it) for it in sorted(ranges)]
        age_of = self.transactions.limits.age_of
        return tuple([_held_by(it, ranges[it.context.id], age_of) for it in sessions if it])

    def warnings(self, closed: TimeTick) -> Iterator[str]:
        """What an operator should know: groups that cannot go on, and what transactions hold."""
        views = [it.describe() for it in list(self.running.values())]
        full = [it.group.key for it in views if it.first is not None and it.first.full]
        for key in full[:WARNINGS_MAX]:
            yield (
                f"group {key.name!r} on {key.vchannel} delivers nothing new: too many messages wait"
                " behind one that nobody settles; `tidemark group describe` names its key"
            )
        held = [(key, it) for key in self._holders() for it in self._held(key)]
        old = [it for it in held if _ms_since(it[1], closed) >= HELD_MS]
        for key, each in old[:WARNINGS_MAX]:
            who = f"transaction {each.txn}" + (f" ({each.stage})" if each.stage else "")
            yield (
                f"{who} on {key.vchannel} holds acknowledgements of group {key.name!r} for"
                f" {_ms_since(each, closed) // 1000} s; is its writer alive? When it is rolled"
                " back, the messages come again"
            )

    def _holders(self) -> Sequence[GroupKey]:
        """The groups of which transactions hold something."""
        if not self.table.holding:
            return ()
        return [key for key, state in self.table.groups.items() if state.held]

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


def _held_by(session: TxnSession, ranges: int, age_of: AgeOf) -> HeldByTxn:
    context, stage, last_tick = session.context, session.stage, session.last_tick
    # What is prepared waits for the coordinator's decision, and for no time.
    ends_ms = 0
    if session.state is TxnState.IN_FLIGHT:
        end = lease_end(context, last_tick, age_of(stage))
        ends_ms = (end - last_tick) >> TICK_LOGICAL_BITS
    name = "" if stage is None else str(stage)
    return HeldByTxn(context.id, ranges, name, last_tick, ends_ms)


def _ms_since(held: HeldByTxn, tick: TimeTick) -> int:
    return (tick - held.txn) >> TICK_LOGICAL_BITS


def _in_flight(key: GroupKey) -> str:
    return (
        f"what was decided before in group {key.name!r} on {key.vchannel} is not stored after"
        f" {LANDED_S} s; it begins when that is known; retry later"
    )


def _full(key: GroupKey, there: int, new: int) -> str:
    return (
        f"{pchannel_of(key.vchannel)} has {there} groups, and {new - 1} more are being created; the"
        f" limit is {GROUPS_MAX}; drop some"
    )


def _seen(changed: TimeTick, notes: GroupNotes) -> TimeTick:
    """When somebody was there, by the newest change of the group."""
    return max(notes.left, changed if changed > notes.raised else TimeTick(0))
