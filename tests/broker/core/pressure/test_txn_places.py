"""Places of open transactions, against a model that counts them all each time."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from broker.core.pressure import txn_places
from broker.core.pressure.txn_places import TxnPlace, TxnPlaces

NAMES = ("ann", "bob", "cid")


def test_a_begin_takes_a_place_until_it_failed_or_its_transaction_is_over() -> None:
    places, is_open = TxnPlaces(), True
    first, second = places.take("ann", 2), places.take("ann", 2)
    assert first is not None
    assert second is not None
    assert places.take("ann", 2) is None
    assert places.take("bob", 1) is not None, "each has its own"
    first.failed()
    third = places.take("ann", 2)
    assert third is not None
    second.begun(lambda: is_open)
    third.begun(lambda: True)
    assert places.take("ann", 2) is None
    is_open = False
    assert places.take("ann", 2) is not None


def test_a_lower_limit_holds_for_the_next_begin() -> None:
    places = TxnPlaces()
    assert [places.take("ann", 3) is None for _ in range(3)] == [False] * 3
    assert places.take("ann", 2) is None


class Model:
    """Every transaction that ever was, and whether it is open."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, int], bool] = {}

    def count(self, name: str) -> int:
        return sum(is_open for (of, _), is_open in self.open.items() if of == name)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.sampled_from(["begin", "end", "fail"]), st.integers(1, 3)
        ),
        max_size=60,
    )
)
def test_an_identity_never_has_more_than_its_limit_and_never_less_room(
    steps: list[tuple[str, str, int]],
) -> None:
    places, model = TxnPlaces(), Model()
    begun: list[tuple[tuple[str, int], TxnPlace]] = []
    for number, (name, what, limit) in enumerate(steps):
        if what == "begin":
            place = places.take(name, limit)
            assert (place is None) == (model.count(name) >= limit)
            if place is not None:
                key = (name, number)
                model.open[key] = True
                place.begun(partial(model.open.__getitem__, key))
                begun.append((key, place))
        elif begun:
            key, place = begun.pop(0)
            model.open[key] = False
            if what == "fail":
                place.failed()
    assert len(places) <= len(NAMES)


def test_identities_without_open_transactions_are_forgotten_when_there_are_too_many() -> None:
    places = TxnPlaces()
    kept = places.take("kept", 1)
    for number in range(txn_places.IDENTITIES_MAX - 1):
        place = places.take(f"user{number}", 1)
        assert place is not None
        place.failed()
    assert len(places) == txn_places.IDENTITIES_MAX
    assert places.take("another", 1) is not None
    assert len(places) == 2
    assert kept is not None
    assert kept.taken
    assert places.take("kept", 1) is None
