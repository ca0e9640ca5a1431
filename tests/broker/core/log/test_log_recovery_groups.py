"""Groups in snapshots: replayed from anywhere, half saved or not, they are those of the log."""

import random

import pytest

from broker.core.groups.group_table import GroupTable
from broker.core.log.log_recovery import RecoveryState
from broker.model.effect import Effect
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import TimeTick
from broker.model.snapshot import Snapshot, SnapshotChange, WalCheckpoint
from tests.broker.core.groups.made_changes import random_changes, record_of


def no_effect(kind: int, stored: bytes, *, of_batch: bool = False) -> Effect | str | None:
    raise AssertionError((kind, stored, of_batch))


class Store:
    """What a store holds after some of the writes of some changes."""

    def __init__(self) -> None:
        self.checkpoint: WalCheckpoint | None = None
        self.groups: dict[GroupKey, GroupSnapshot] = {}

    def write(self, change: SnapshotChange, rng: random.Random) -> bool:
        """Objects in any order, the checkpoint last; whether it came to the end."""
        steps: list[tuple[GroupKey, GroupSnapshot | None]] = [
            *[(it.key, it) for it in change.groups],
            *[(key, None) for key in change.gone_groups],
        ]
        rng.shuffle(steps)
        crash_after = rng.choice([0, 1, 2, 99])
        for key, group in steps[:crash_after]:
            self.groups.pop(key, None)
            if group is not None:
                self.groups[key] = group
        if crash_after <= len(steps):
            return False
        self.checkpoint = change.checkpoint
        return True

    def state(self) -> RecoveryState:
        return RecoveryState(
            Snapshot(self.checkpoint, groups=tuple(self.groups.values())), no_effect
        )


@pytest.mark.parametrize("seed", range(200))
def test_however_it_is_saved_and_crashes_the_groups_are_those_of_the_whole_log(seed: int) -> None:
    rng = random.Random(seed)
    records = [record_of(*it) for it in random_changes(rng, 40)]
    whole = GroupTable()
    for record in records:
        whole.observe(record)
    store, at = Store(), 0
    state = store.state()
    while at < len(records):
        assert state.observe(records[at]) == []
        at += 1
        died = rng.random() < 0.1
        if rng.random() < 0.3:
            change = state.take()
            died = not store.write(change, rng)
            if not died:
                state.saved(change)
        if died:
            state = store.state()
            for record in records[:at]:
                state.observe(record)
    expected = sorted(whole.snapshots(), key=str)
    assert sorted(state.groups.snapshots(), key=str) == expected
    assert sorted(state.snapshot().groups, key=str) == expected


def test_groups_of_another_log_leave_the_store() -> None:
    state = RecoveryState(Snapshot(), no_effect)
    stranger = GroupSnapshot(GroupKey("v", "g"), 1000, TimeTick(1), (), TimeTick(1), TimeTick(1))
    state.renounce(Snapshot(groups=(stranger,)))
    assert state.take().gone_groups == (stranger.key,)
