"""Terms over the store: durable, growing, and only for the owner."""

from contextlib import suppress

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
FIRST = Term(1)


async def test_the_first_term_acquired_is_two_and_the_next_one_larger() -> None:
    store = MemoryMetaStore()
    terms = StoredTerms(store, ONE)
    assert [await terms.acquire(NAME, Term(it)) for it in (1, 2, 3)] == [2, 3, 4]
    meta = (await ChannelRecords(store).read(NAME)).meta
    assert (meta.term, meta.state, meta.node) == (4, PChannelState.ASSIGNING, ONE)


async def test_a_term_is_acquired_once_by_those_who_come_at_once() -> None:
    store, given = MemoryMetaStore(), list[Term]()

    async def acquire() -> None:
        with suppress(Refused):
            given.append(await StoredTerms(store, ONE).acquire(NAME, FIRST))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(acquire)
    assert given == [2]


async def test_claiming_the_newest_term_succeeds_again_and_again_and_writes_nothing() -> None:
    store = ShakyStore(MemoryMetaStore())
    terms = StoredTerms(store, ONE)
    term = await terms.acquire(NAME, FIRST)
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
    assert await terms.acquire(NAME, Term(7)) == 8


async def test_a_former_owner_cannot_take_the_channel_back() -> None:
    store = MemoryMetaStore()
    former = StoredTerms(store, ONE)
    await former.acquire(NAME, FIRST)
    await ChannelRecords(store).change(NAME, lambda meta: assign(meta, TWO))
    with pytest.raises(Refused, match="node 2 owns it since term 3") as caught:
        await former.acquire(NAME, Term(2))
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION
    assert await StoredTerms(store, TWO).acquire(NAME, Term(3)) == 4


async def test_what_a_node_had_before_another_one_takes_no_term_of_its_new_assignment() -> None:
    """The other one may still close ticks: the coordinator waits for it, and then says so."""
    store = MemoryMetaStore()
    node = StoredTerms(store, ONE)
    before = await node.acquire(NAME, FIRST)
    await ChannelRecords(store).change(NAME, lambda meta: assign(meta, TWO))
    await ChannelRecords(store).change(NAME, lambda meta: assign(meta, ONE))
    with pytest.raises(Refused, match="term 4 was assigned since term 2") as caught:
        await node.acquire(NAME, before)
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION
    await node.claim(PChannel(NAME, Term(4)))
    assert await node.acquire(NAME, Term(4)) == 5


@pytest.mark.parametrize("lost", [1, 31])
async def test_a_race_that_was_lost_is_run_again(lost: int) -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = lost
    assert await StoredTerms(store, ONE).acquire(NAME, FIRST) == 2


async def test_a_race_that_is_always_lost_is_a_refusal_and_no_loop() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = 1000
    with pytest.raises(Refused, match="lost 32 races") as caught:
        await StoredTerms(store, ONE).acquire(NAME, FIRST)
    assert caught.value.refusal.code is StreamingCode.INNER


async def test_a_store_that_fails_is_a_refusal_to_try_again() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.broken = True
    with pytest.raises(Refused, match="disk full") as caught:
        await StoredTerms(store, ONE).acquire(NAME, FIRST)
    assert caught.value.refusal.code is StreamingCode.INNER
