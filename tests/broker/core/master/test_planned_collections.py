"""Collections that are planned: found by id, counted on each pchannel."""

from broker.core.master.planned_collections import PlannedCollections
from broker.core.naming import pchannel_names, vchannel_name
from broker.model.ids import CollectionId, VChannelName

PCHANNELS = pchannel_names("by-dev", 2)


def vchannels(id: int, *pchannels: int) -> list[VChannelName]:
    places = enumerate(pchannels)
    return [vchannel_name(PCHANNELS[it], CollectionId(id), shard) for shard, it in places]


def seen(planned: PlannedCollections) -> list[int]:
    return [planned.vchannels(it) for it in PCHANNELS]


def test_ids_and_vchannels_count_until_the_creation_is_over() -> None:
    planned = PlannedCollections()
    planned.add("a", CollectionId(7), vchannels(7, 0, 1))
    planned.add("b", CollectionId(8), vchannels(8, 0))
    assert CollectionId(7) in planned
    assert seen(planned) == [2, 1]
    planned.remove("a")
    assert CollectionId(7) not in planned
    assert CollectionId(8) in planned
    assert seen(planned) == [1, 0]
    planned.remove("a")
    planned.remove("never planned")
    planned.remove("b")
    assert seen(planned) == [0, 0]


def test_an_id_that_two_have_is_taken_until_both_are_over() -> None:
    planned = PlannedCollections()
    planned.add("a", CollectionId(7), [])
    planned.add("b", CollectionId(7), [])
    planned.remove("a")
    assert CollectionId(7) in planned
    planned.remove("b")
    assert CollectionId(7) not in planned


def test_a_request_that_is_planned_again_counts_once() -> None:
    planned = PlannedCollections()
    planned.add("a", CollectionId(7), vchannels(7, 0))
    planned.add("a", CollectionId(9), vchannels(9, 1))
    assert CollectionId(7) not in planned
    assert CollectionId(9) in planned
    assert seen(planned) == [0, 1]


def test_what_is_over_leaves_nothing_behind() -> None:
    planned = PlannedCollections()
    for id in range(1000):
        planned.add(f"{id}", CollectionId(id), vchannels(id, id % 2))
        planned.remove(f"{id}")
    kept = [getattr(planned, it) for it in vars(planned)]
    assert [len(it) for it in kept] == [0, 0, 0]
