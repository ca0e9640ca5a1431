"""Placement, against its two promises: spread as wide as can be, then even."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.shard_placement import place_shards
from broker.model.ids import PChannelName

loads_of_pchannels = st.dictionaries(
    st.integers(0, 40).map(lambda index: PChannelName(f"p_{index}")),
    st.integers(0, 5),
    min_size=1,
    max_size=20,
)


@given(loads_of_pchannels, st.integers(0, 60))
def test_shards_use_as_many_pchannels_as_there_are(
    loads: dict[PChannelName, int], shards: int
) -> None:
    uses = Counter(place_shards(loads, shards))
    assert uses.total() == shards
    assert len(uses) == min(shards, len(loads))
    assert max(uses.values(), default=0) - min((uses[name] for name in loads), default=0) <= 1


@given(loads_of_pchannels, st.integers(0, 60))
def test_no_pchannel_is_passed_over_for_a_fuller_one(
    loads: dict[PChannelName, int], shards: int
) -> None:
    uses = Counter(place_shards(loads, shards))
    fewest = min(uses[name] for name in loads)
    passed_over = [(loads[name], name) for name in loads if uses[name] == fewest]
    preferred = [(loads[name], name) for name in loads if uses[name] > fewest]
    assert not preferred or max(preferred) < min(passed_over)


def test_even_pchannels_are_used_in_string_order() -> None:
    loads = {PChannelName(name): 0 for name in ("p_2", "p_10", "p_1")}
    assert place_shards(loads, 4) == ("p_1", "p_10", "p_2", "p_1")


def test_the_loads_that_were_given_stay_as_they_were() -> None:
    loads = {PChannelName("p"): 0}
    place_shards(loads, 3)
    assert loads == {"p": 0}
