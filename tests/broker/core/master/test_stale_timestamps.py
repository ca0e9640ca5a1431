"""The newest timestamp that was planned for each name."""

import pytest

from broker.core.master import stale_timestamps
from broker.core.master.stale_timestamps import PlannedTimestamps
from broker.model.broadcast import ResourceKey

A, B, C = (ResourceKey.collection(name) for name in "abc")
SHARED = ResourceKey.database(shared=True)


def test_each_name_has_the_newest_timestamp_of_its_changes() -> None:
    known = PlannedTimestamps()
    known.planned((A, SHARED), 5)
    known.planned((A, B), 3)
    known.planned((B,), 0)
    assert [known.newest((it,)) for it in (A, B, C, SHARED)] == [5, 3, 0, 0]
    assert known.newest((A, B)) == 5
    assert known.newest(()) == 0


def test_a_forgotten_name_counts_as_planned_at_the_newest_of_the_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stale_timestamps, "NAMES_MAX", 1)
    known = PlannedTimestamps()
    known.planned((A,), 5)
    known.planned((B,), 4)
    assert known.newest((A,)) == 5, "never too old: an older change of it stays refused"
    assert known.newest((C,)) == 5
    assert known.newest((B,)) == 4
