"""Terms over the store: durable, growing, and only for the owner."""

import anyio
import pytest

from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.core.cluster.assignment import assign
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import PChannel, PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from tests.broker.coordinator.fakes import ShakyStore

NAME = PChannelName("by-dev-rootcoord-dml_0")
ONE, TWO = NodeId(1), NodeId(2)


async def test_the_first_term_acquired_is_two_and_the_next_one_larger() -> None:
    store = MemoryMetaStore()
    terms = StoredTerms(store, ONE)
    assert [await terms.acquire(NAME) for _ in range(3)] == [2, 3, 4]
    meta = (await ChannelRecords(store).read(NAME)).meta
    assert (meta.term, meta.state, meta.node) == (4, PChannelState.ASSIGNING, ONE)


async def test_terms_acquired_at_once_are_all_different() -> None:
    store, given = MemoryMetaStore(), list[Term]()

    async def acquire() -> None:
        given.append(await StoredTerms(store, ONE).acquire(NAME))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(acquire)
    assert sorted(given) == list(range(2, 12))


async def test_claiming_the_newest_term_succeeds_again_and_again_and_writes_nothing() -> None:
    store = ShakyStore(MemoryMetaStore())
    terms = StoredTerms(store, ONE)
    term = await terms.acquire(NAME)
    written = store.writes
    await terms.claim(PChannel(NAME, term))
    await terms.claim(PChannel(NAME, term))
    assert store.writes == written


async def test_claiming_an_older_term_is_refused_with_both_terms() -> None:
    terms = StoredTerms(MemoryMetaStore(), ONE)
    await terms.claim(PChannel(NAME, Term(7)))
    with pytest.raises(Refused, match="term 6 is older than term 7") as caught:
        await terms.claim(PChannel(NAME, Term(6)))
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION
    assert await terms.acquire(NAME) == 8


async def test_a_former_owner_cannot_take_the_channel_back() -> None:
    store = MemoryMetaStore()
    former = StoredTerms(store, ONE)
    await former.acquire(NAME)
    await ChannelRecords(store).change(NAME, lambda meta: assign(meta, TWO))
    with pytest.raises(Refused, match="node 2 owns it since term 3") as caught:
        await former.acquire(NAME)
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION
    assert await StoredTerms(store, TWO).acquire(NAME) == 4


@pytest.mark.parametrize("lost", [1, 31])
async def test_a_race_that_was_lost_is_run_again(lost: int) -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = lost
    assert await StoredTerms(store, ONE).acquire(NAME) == 2


async def test_a_race_that_is_always_lost_is_a_refusal_and_no_loop() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = 1000
    with pytest.raises(Refused, match="lost 32 races") as caught:
        await StoredTerms(store, ONE).acquire(NAME)
    assert caught.value.refusal.code is StreamingCode.INNER


async def test_a_store_that_fails_is_a_refusal_to_try_again() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.broken = True
    with pytest.raises(Refused, match="disk full") as caught:
        await StoredTerms(store, ONE).acquire(NAME)
    assert caught.value.refusal.code is StreamingCode.INNER
