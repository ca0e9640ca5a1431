"""How a range is parted: no part too large, at least as many as wished, few for many channels."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.naming import pchannel_of
from broker.spark.source.planning import ALONE_MAX, BYTES_MAX, groups, shares


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 500), min_size=1),
    st.integers(1, 100),
    st.integers(0, 50),
)
def test_no_part_is_too_large_and_there_are_as_many_as_wished(
    sizes: dict[str, int], size_max: int, parts_min: int
) -> None:
    parts = shares(sizes, size_max, parts_min)
    assert parts.keys() == sizes.keys()
    assert all(size / parts[name] <= size_max for name, size in sizes.items())
    assert sum(parts.values()) >= parts_min
    fewest = {name: max(1, -(-size // size_max)) for name, size in sizes.items()}
    assert sum(parts.values()) <= max(sum(fewest.values()), parts_min)


def test_where_nothing_is_nothing_is_parted() -> None:
    assert shares({}, 10, 5) == {}
    assert groups({}) == []


def test_a_few_channels_are_read_each_by_itself() -> None:
    names = {f"p_{it % 2}_1v{it}": BYTES_MAX for it in range(ALONE_MAX)}
    assert groups(names) == [(name,) for name in names]


def test_many_small_channels_of_one_pchannel_are_read_together() -> None:
    names = {f"p_{it % 4}_1v{it}": BYTES_MAX // 10 for it in range(ALONE_MAX * 4)}
    found = groups(names)
    assert sorted(name for group in found for name in group) == sorted(names)
    assert all(len({pchannel_of(name) for name in group}) == 1 for group in found)
    assert all(sum(names[name] for name in group) <= BYTES_MAX for group in found)
    assert len(found) == 4 * 7
