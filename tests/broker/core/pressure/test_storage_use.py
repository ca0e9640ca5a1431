"""What collections store against their limits: who is refused, and what others are told."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.pressure.limit_rules import parsed_limits
from broker.core.pressure.storage_use import (
    GRAINS,
    RETRY_MS,
    WARNINGS_MAX,
    LimitedCollection,
    StorageBook,
    StorageUse,
    limited_collections,
    storage_refusal,
    uses_of,
    worth_telling,
)
from broker.model.failure import StreamingCode

A, B = "p_1v0", "q_1v1"


def use(name: str = "clicks", limit: int = 100, **sizes: int) -> StorageUse:
    return StorageUse(name, limit, sizes)


def test_a_collection_that_has_reached_its_limit_is_refused_on_each_of_its_vchannels() -> None:
    book = StorageBook()
    assert book.refusal("a") is None
    book.now = uses_of([use(a=60, b=40), use("quiet", c=99)])
    refused = book.refusal("b")
    assert refused == book.refusal("a") == storage_refusal("clicks", 100, 100)
    assert refused is not None
    assert (refused.code, refused.retry_ms) == (StreamingCode.RATE_LIMIT_REJECTED, RETRY_MS)
    assert refused.cause == (
        "collection 'clicks' has 100 bytes stored, and its limit of storage is 100; nothing was"
        " stored: purge it, give it a retention, or raise `storage` in the setting limits"
    )
    assert book.refusal("c") is None


def test_health_names_those_beyond_and_near_their_limit_the_fullest_first() -> None:
    now = uses_of([use("low", a=89), use("near", a=90), use("over", a=101)])
    assert [it.collection for it in now.uses] == ["over", "near", "low"]
    over, near = now.warnings()
    assert over.startswith(
        "collection 'over' has 101 bytes stored, and its limit of storage is 100: appends are"
        " refused, reads go on; purge it"
    )
    assert near.startswith(
        "collection 'near' has 90 bytes stored, and its limit of storage is 100; purge it"
    )
    many = uses_of([use(str(it), a=200) for it in range(3 * WARNINGS_MAX)])
    assert len(many.warnings()) == WARNINGS_MAX


def test_a_name_with_a_limit_stands_for_one_collection_in_each_database() -> None:
    rules = parsed_limits("collection:click* storage=7; collection:77 storage=3")
    named = {
        ("", "clicks"): [A],
        ("shop", "clicks"): [B],
        ("", "other"): ["p_2v0"],
        ("", "77"): ["p_77v0"],
        ("", "clicked"): [],
    }
    found = limited_collections(rules, named)
    assert found == [
        LimitedCollection("clicks", 7, [A]),
        LimitedCollection("shop/clicks", 7, [B]),
        LimitedCollection("77", 3, ["p_77v0"]),
    ]
    assert found[0].use({A: 5, B: 9}) == StorageUse("clicks", 7, {A: 5})
    assert found[1].use({A: 5}) == StorageUse("shop/clicks", 7, {B: 0})


sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2000), min_size=1)


@given(sizes, sizes, st.integers(1, 5000), st.booleans())
def test_what_others_know_is_right_up_to_a_64th_and_about_whether_it_is_over(
    now: dict[str, int], told: dict[str, int], limit: int, everything: bool
) -> None:
    it = StorageUse("clicks", limit, now)
    told = {name: size for name, size in told.items() if name in now}
    known = told | worth_telling(it, told, now, everything=everything)
    total = sum(known.values())
    assert abs(total - it.total) <= limit / GRAINS
    assert (total >= limit) is it.is_over
    assert not everything or all(known.get(name, 0) == size for name, size in now.items())


def test_nothing_is_told_of_what_has_hardly_changed_nor_of_what_others_own() -> None:
    it = use(limit=64 * 2 * 10, a=29, b=500)
    assert worth_telling(it, {"a": 20, "b": 5}, ["a"], everything=False) == {}
    assert worth_telling(it, {"a": 19, "b": 5}, ["a"], everything=False) == {"a": 29}
    assert worth_telling(it, {"a": 28, "b": 5}, ["a"], everything=True) == {"a": 29}
