"""What a log says of its groups: the fold of their changes, in log order.

A replay applies the records it reads, in order; each group carries the tick of the newest change it
includes, so that a change counts once. The writer applies a change when it learns that its record
is durable, which may be in another order. Both leave the same table.

What a transaction acknowledges is held until it ends, and is part of no snapshot: a replay begins
before every open transaction, so it holds the same again.
"""

from collections.abc import Collection, Iterable
from typing import assert_never

from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    MessagesDying,
    MessagesTried,
    UnreadableChange,
    decode_change,
)
from broker.core.groups.group_state import GroupState, HeldAck
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import TimeTick, TxnId
from broker.model.record import Record


class GroupTable:
    """The groups of one pchannel. `changed` and `gone`: since they were last cleared."""

    def __init__(self, saved: Iterable[GroupSnapshot] = ()) -> None:
        self.groups = {each.key: GroupState(each) for each in saved}
        self.changed: set[GroupKey] = set()
        self.gone: set[GroupKey] = set()
        self._holding: dict[TxnId, set[GroupKey]] = {}

    @property
    def holding(self) -> Collection[TxnId]:
        """The open transactions that acknowledge something."""
        return self._holding.keys()

    def observe(
        self, record: Record, open_txns: Collection[TxnId] = (), *, known: bool = False
    ) -> list[str]:
        """Apply a record of kind GROUP_CHANGE; returns what cannot be read, as texts.

        `open_txns`: the transactions that have begun and not ended before the record. `known`: the
        groups include it, and only what these transactions hold is learnt.
        """
        wrong: list[str] = []
        for message in record.messages():
            try:
                change = decode_change(message.body)
            except UnreadableChange as error:
                wrong.append(f"message {message.id}: {error}")
                continue
            state = self.groups.get(GroupKey(record.vchannel, change.name))
            if isinstance(change, AckedInTxn):
                # Of another one the end is included already: the replay began behind its begin.
                if change.txn in open_txns:
                    self.hold(record.vchannel, change, message.tick)
            elif not known and (state is None or state.tick < message.tick):
                self.apply(record.vchannel, change, message.tick)
            elif state is not None:
                _let_go(state, change, message.tick)
        return wrong

    def hold(self, vchannel: str, change: AckedInTxn, tick: TimeTick) -> None:
        """Keep what a transaction acknowledges by a record at `tick`, until `end_txn`."""
        key = GroupKey(vchannel, change.name)
        state = self.groups.get(key)
        if state is not None:
            state.held.append(HeldAck(change.txn, change.spans, change.times, tick))
            self._holding.setdefault(change.txn, set()).add(key)

    def end_txn(
        self, txn: TxnId, commit_tick: TimeTick | None
    ) -> list[tuple[GroupKey, tuple[HeldAck, ...]]]:
        """Acknowledge what the transaction holds, if it has committed; None: it has not.

        Returns what it held of each group, in any case.
        """
        found: list[tuple[GroupKey, tuple[HeldAck, ...]]] = []
        for key in self._holding.pop(txn, ()):
            state = self.groups.get(key)
            mine = () if state is None else tuple([it for it in state.held if it.txn == txn])
            # Without any, the group was set to another place, or dropped, since.
            if state is None or not mine:
                continue
            state.held = [it for it in state.held if it.txn != txn]
            found.append((key, mine))
            if commit_tick is not None and state.since_tick < commit_tick:
                state.acknowledge([span for it in mine for span in it.spans])
                state.tick = max(state.tick, commit_tick)
                self.changed.add(key)
        return found

    def apply(self, vchannel: str, change: GroupChange, tick: TimeTick) -> None:
        """Apply a change that is durable at `tick`, once; not one of a transaction.

        Acknowledgements may come in any order; other changes of a group come in theirs. A change of
        a group that is not there does nothing: the group was dropped behind it.
        """
        assert not isinstance(change, AckedInTxn), "held when it is placed, until `end_txn`"
        key = GroupKey(vchannel, change.name)
        if isinstance(change, GroupCreated):
            self._create(key, change, tick)
            return
        state = self.groups.get(key)
        if state is None or state.since_tick >= tick:
            return
        match change:
            case MessagesAcked(_, spans):
                state.acknowledge(spans)
            case MessagesTried(_, spans, times):
                state.try_again(spans, times)
            case MessagesDying(_, spans, cause, times):
                state.give_up(spans, cause, times, tick)
            case GroupAltered(_, lease_ms, limit):
                state.alter(lease_ms, limit)
            case GroupSought(_, floor):
                state.seek(tick if floor is None else floor, tick)
                _let_go(state, change, tick)
            case GroupDropped():
                del self.groups[key]
                self.changed.discard(key)
                self.gone.add(key)
                return
            case _:
                assert_never(change)
        state.tick = max(state.tick, tick)
        self.changed.add(key)

    def snapshots(self) -> tuple[GroupSnapshot, ...]:
        """All groups."""
        return tuple([each.snapshot() for each in self.groups.values()])

    def changes(self) -> tuple[GroupSnapshot, ...]:
        """Those that have changed."""
        return tuple([self.groups[key].snapshot() for key in self.changed])

    def clear_changes(self) -> None:
        """They are saved."""
        self.changed.clear()
        self.gone.clear()

    def _create(self, key: GroupKey, change: GroupCreated, tick: TimeTick) -> None:
        floor = tick if change.floor is None else change.floor
        self.groups[key] = GroupState(
            GroupSnapshot(
                *(key, change.lease_ms, floor, (), tick, tick, change.limit), mode=change.mode
            )
        )
        self.changed.add(key)
        self.gone.discard(key)


def _let_go(state: GroupState, change: GroupChange, tick: TimeTick) -> None:
    """What was held before a group was set to another place has no effect on it any more."""
    if isinstance(change, GroupCreated | GroupSought | GroupDropped):
        state.held = [it for it in state.held if it.tick > tick]
