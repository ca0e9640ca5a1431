"""What a log says of its groups: the fold of their changes, in log order.

A replay applies the records it reads, in order; each group carries the tick of the newest change it
includes, so that a change counts once. The writer applies a change when it learns that its record
is durable, which may be in another order. Both leave the same table.
"""

from collections.abc import Iterable
from typing import assert_never

from broker.core.groups.group_changes import (
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    UnreadableChange,
    decode_change,
)
from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot, TickSpan
from broker.model.ids import TimeTick
from broker.model.record import Record


class GroupState:
    """One group: everything up to `floor` is acknowledged, and `acked` above it."""

    __slots__ = ("acked", "created_tick", "floor", "key", "lease_ms", "since_tick", "tick")

    def __init__(self, saved: GroupSnapshot) -> None:
        self.key = saved.key
        self.lease_ms = saved.lease_ms
        self.floor = saved.floor
        self.acked = TickSpans(saved.acked)
        self.created_tick = saved.created_tick
        self.tick = saved.tick
        self.since_tick = saved.tick
        """Acknowledgements up to it are included, or the group was set to another place since."""

    def acknowledge(self, spans: Iterable[TickSpan]) -> None:
        """Take these as acknowledged; again or not."""
        for span in spans:
            self.acked.add(TickSpan(max(span.after, self.floor), span.upto))
        self.floor = self.acked.raised(self.floor)

    def seek(self, floor: TimeTick, tick: TimeTick) -> None:
        """Forget what is acknowledged above `floor`, and that anything below it is not."""
        self.floor, self.acked, self.since_tick = floor, TickSpans(), tick

    def snapshot(self) -> GroupSnapshot:
        """The state as a value."""
        acked = tuple(self.acked)
        return GroupSnapshot(
            self.key, self.lease_ms, self.floor, acked, self.created_tick, self.tick
        )


class GroupTable:
    """The groups of one pchannel. `changed` and `gone`: since they were last cleared."""

    def __init__(self, saved: Iterable[GroupSnapshot] = ()) -> None:
        self.groups = {each.key: GroupState(each) for each in saved}
        self.changed: set[GroupKey] = set()
        self.gone: set[GroupKey] = set()

    def observe(self, record: Record) -> list[str]:
        """Apply a record of kind GROUP_CHANGE; returns what cannot be read, as texts."""
        wrong: list[str] = []
        for message in record.messages():
            try:
                change = decode_change(message.body)
            except UnreadableChange as error:
                wrong.append(f"message {message.id}: {error}")
                continue
            known = self.groups.get(GroupKey(record.vchannel, change.name))
            if known is None or known.tick < message.tick:
                self.apply(record.vchannel, change, message.tick)
        return wrong

    def apply(self, vchannel: str, change: GroupChange, tick: TimeTick) -> None:
        """Apply a change that is durable at `tick`, once.

        Acknowledgements may come in any order; other changes of a group come in theirs. A change of
        a group that is not there does nothing: the group was dropped behind it.
        """
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
            case GroupSought(_, floor):
                state.seek(tick if floor is None else floor, tick)
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
        self.groups[key] = GroupState(GroupSnapshot(key, change.lease_ms, floor, (), tick, tick))
        self.changed.add(key)
        self.gone.discard(key)
