"""The forgotten broadcasts of one cluster, against the set of all that were forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.model.ids import BroadcastId

IDS = st.integers(1, 40).map(BroadcastId)


@given(st.lists(st.lists(IDS, max_size=6), max_size=12), st.integers(0, 8))
def test_none_that_was_forgotten_runs_again_and_the_newest_are_told_apart(
    rounds: list[list[BroadcastId]], ids_max: int
) -> None:
    forgotten = ForgottenIds()
    every: set[BroadcastId] = set()
    for ids in rounds:
        forgotten = forgotten.and_also(ids, ids_max)
        every |= set(ids)
        assert all(map(forgotten.covers, every))
        assert len(forgotten.ids) <= ids_max
        assert all(id > forgotten.horizon for id in forgotten.ids)
        above = [BroadcastId(id) for id in range(forgotten.horizon + 1, 41)]
        assert {id for id in above if forgotten.covers(id)} == {id for id in above if id in every}
        if len(every) <= ids_max:
            assert forgotten.horizon == 0
