"""Broadcasts in the store: what is written is read back, and nothing else is."""

import re
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.broadcast.broadcast_records import (
    BODY_INLINE_MAX,
    BODY_PREFIX,
    INCARNATION_KEY,
    BroadcastRecords,
    RecordUnknown,
    decode_task,
    encode_task,
    fitting_groups,
    record_problem,
    task_key,
)
from broker.coordinator.records import encode_number
from broker.core.cluster.broadcast_state import (
    BroadcastPhase,
    BroadcastState,
    BroadcastStep,
    advanced,
    new_broadcast,
    poisoned,
)
from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.meta.memory_store import MemoryMetaStore
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import Appended
from broker.ports.meta import Conflict, MetaEntry, MetaError
from broker.ports.meta_writes import SPLIT_KEYS, VALUE_BYTES_MAX, all_entries
from tests.broker.coordinator.fakes import ShakyStore
from tests.broker.meta.flaky import Flaky

PLACES = st.builds(
    Appended, *(st.integers(1, 2**63).map(kind) for kind in (MessageId, TimeTick, MessageId))
)  # fmt: skip
KEYS = st.builds(ResourceKey, st.sampled_from(ResourceDomain), st.text(), st.booleans())


@st.composite
def tasks(draw: st.DrawFn) -> BroadcastState:
    count = draw(st.integers(1, 4))
    names = tuple(VChannelName(f"p_{it}_1v0") for it in range(count))
    broadcast = Broadcast(
        draw(st.integers(1, 999)), names, tuple(draw(st.lists(KEYS, max_size=3))),
        draw(st.binary()), draw(st.integers(0)), draw(st.text()), draw(st.text()),
        draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip
    landed = tuple(draw(st.lists(st.none() | PLACES, min_size=count, max_size=count)))
    acked = tuple(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return BroadcastState(
        BroadcastId(draw(st.integers(1, 2**63))), draw(st.sampled_from(BroadcastPhase)), broadcast,
        landed, acked, draw(st.text()), draw(st.text()), draw(st.booleans()), draw(st.integers(0)),
    )  # fmt: skip


@given(tasks())
def test_a_task_is_read_back_as_it_was(task: BroadcastState) -> None:
    assert decode_task("key", encode_task(task)) == (task, 0)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"", "unreadable"),
        (b"{}\n", "unreadable"),
        (b"[]\n", "unreadable"),
        (b'{"version":2}\n', "version 2; this program knows version 1"),
        (b'{"version":1}\n', "unreadable"),
        (b"\xff\n", "unreadable"),
    ],
)
def test_what_is_no_record_is_told_with_its_key(value: bytes, cause: str) -> None:
    with pytest.raises(MetaError, match=f"broadcast/task/7: .*{cause}"):
        decode_task("broadcast/task/7", value)


def test_our_own_tasks_lie_in_the_order_of_their_ids() -> None:
    assert sorted(map(task_key, ("10", "9", "4294967297"))) == [
        task_key(it) for it in ("9", "10", "4294967297")
    ]
    assert task_key("src~7") == "broadcast/task/src~7"


def test_first_ids_are_far_apart_whatever_races_there_are() -> None:
    async def main() -> None:
        store = ShakyStore(MemoryMetaStore())
        records = BroadcastRecords(store)
        first = await records.first_id()
        store.lost_races = 7
        assert await records.first_id() - first == 2**32
        store.lost_races = 1000
        with pytest.raises(MetaError, match="lost 8 races"):
            await records.first_id()
        await store.inner.write({INCARNATION_KEY: b"x"})
        with pytest.raises(MetaError, match="is not a number"):
            await records.first_id()

    anyio.run(main)


def test_a_horizon_of_an_earlier_release_still_counts() -> None:
    async def main() -> None:
        store = MemoryMetaStore()
        await store.write({"broadcast/horizon/src": encode_number(7)})
        assert await BroadcastRecords(store).forgotten() == {"src": ForgottenIds(BroadcastId(7))}

    anyio.run(main)


LARGE = bytes(range(256)) * 5000


def unfinished(
    number: int, body: bytes = b"", keys: tuple[ResourceKey, ...] = ()
) -> BroadcastState:
    asked = Broadcast(5, (VChannelName("p_1_1v0"),), keys, body, 1, f"k{number}", "")
    return new_broadcast(BroadcastId(number), asked)


def test_as_many_as_the_store_takes_are_recorded_with_one_write_each_whole_and_in_order() -> None:
    bodies = [b"", bytes(200_000), LARGE]
    tasks = [unfinished(number, bodies[number % 3 if number > 200 else 0]) for number in range(300)]

    async def main() -> None:
        store = MemoryMetaStore()  # refuses what is too large
        records = BroadcastRecords(store)
        groups = list(fitting_groups(tasks))
        assert [task for group in groups for task in group] == tasks
        assert len(groups[0]) == SPLIT_KEYS
        for group in groups:
            await records.create(group)
        found = sorted(await records.load(), key=lambda it: it.task.id)
        assert [it.task for it in found] == tasks
        for each in found:
            assert await records.read(each.task.name) == each

    anyio.run(main)
    assert list(fitting_groups([])) == []


@pytest.mark.parametrize("left", range(7))
def test_a_large_body_is_there_with_its_record_whatever_write_fails(left: int) -> None:
    async def main() -> None:
        inner = MemoryMetaStore()
        store = Flaky(inner)
        records = BroadcastRecords(store)
        task = unfinished(7, LARGE)
        acked = replace(task, acked=(True,))
        store.writes_left = left
        done = 0
        try:
            (first,) = await records.create([task])
            done += 1
            second = await records.save(first, acked)
            done += 1
            await records.save(second, advanced(acked, BroadcastStep.FINISH, 9))
            done += 1
        except MetaError:
            assert left < 6
        store.writes_left = None
        found = await records.load()
        expected = [[], [task], [acked], [advanced(acked, BroadcastStep.FINISH, 9)]][done]
        assert [it.task for it in found] == expected
        await records.remove_bodies(found)
        assert [it.task for it in await records.load()] == expected
        parts = [key async for key, _ in all_entries(inner, BODY_PREFIX)]
        assert len(parts) == (3 if done in (1, 2) else 0)

    anyio.run(main)


def test_a_large_record_of_an_earlier_release_is_finished_in_parts() -> None:
    async def main() -> None:
        store, task = MemoryMetaStore(), unfinished(7, LARGE)
        # As that release wrote it, to a store that took writes of any size.
        store._entries[task_key("7")] = MetaEntry(encode_task(task), 1)
        records = BroadcastRecords(store)
        (found,) = await records.load()
        assert found.task == task
        saved = await records.save(found, replace(task, acked=(True,)))
        assert await records.read("7") == saved
        await records.save(saved, advanced(saved.task, BroadcastStep.FINISH, 9))
        assert [key async for key, _ in all_entries(store, "")] == [task_key("7")]

    anyio.run(main)


def test_a_record_whose_body_is_gone_is_told() -> None:
    async def main() -> None:
        store = MemoryMetaStore()
        records = BroadcastRecords(store)
        await records.create([unfinished(7, LARGE)])
        await store.write({}, deletes=[f"{BODY_PREFIX}{7:020d}/0001"])
        with pytest.raises(MetaError, match=r"task/0*7: 1 of 3 parts of its body are missing"):
            await records.read("7")

    anyio.run(main)


@pytest.mark.parametrize("many", [1, 1024])
def test_a_record_that_no_store_takes_is_told_with_its_size(many: int) -> None:
    key = "ä" * (980_000 // 6 // many)
    largest = unfinished(1, bytes(BODY_INLINE_MAX + 1), (ResourceKey.collection(key),) * many)
    problem = record_problem(largest.broadcast)
    assert re.match(r"the record of the broadcast takes \d+ bytes, at most 983040", problem)
    half = (ResourceKey.collection(key[: len(key) // 2]),) * many
    smaller = unfinished(1, bytes(BODY_INLINE_MAX + 1), half)
    assert record_problem(smaller.broadcast) == ""
    cause = poisoned(smaller, "\U0001f30a" * 100_000)
    assert len(encode_task(cause, 1)) < VALUE_BYTES_MAX


def test_forgetting_thousands_takes_writes_that_fit_and_may_fail_between_any_two() -> None:
    tasks = [
        new_broadcast(BroadcastId(number), unfinished(number).broadcast, "src")
        for number in range(1, 301)
    ]
    forgotten = {"src": ForgottenIds().and_also([task.id for task in tasks])}

    async def main() -> None:
        store = Flaky(MemoryMetaStore())
        records = BroadcastRecords(store)
        for group in fitting_groups(tasks):
            await records.create(group)
        for left in range(6):
            store.writes_left = left
            try:
                await records.forget(tasks, forgotten)
            except MetaError:
                pass
            remembered = {it.task.id for it in await records.load()}
            known = (await records.forgotten()).get("src", ForgottenIds())
            for task in tasks:
                assert task.id in remembered or known.covers(task.id), "a copy would run again"
        assert not remembered

    anyio.run(main)


def test_a_record_whose_answer_was_lost_is_read_back() -> None:
    async def main() -> None:
        answers = iter(("after", "before", "after"))
        store = Flaky(MemoryMetaStore(), lambda: next(answers))
        records = BroadcastRecords(store)
        made = await records.create([unfinished(1)])
        assert made == await records.load(), "it took effect"
        with pytest.raises(MetaError, match="the store is away"):
            await records.create([unfinished(2)])
        assert await records.load() == made, "it did not"
        away = BroadcastRecords(SilentStore(store))
        with pytest.raises(RecordUnknown, match="the answer is lost; reading it back: away"):
            await away.create([unfinished(3)])

    anyio.run(main)


class SilentStore(Flaky):
    """Answers no read."""

    def __init__(self, store: Flaky) -> None:
        super().__init__(store)

    async def get(self, key: str) -> MetaEntry | None:
        raise MetaError(f"away: {key}")


def test_a_record_is_made_once_and_replaced_only_as_it_was_read() -> None:
    async def main() -> None:
        records = BroadcastRecords(MemoryMetaStore())
        task = BroadcastState(
            BroadcastId(1), BroadcastPhase.PENDING, Broadcast(5, (), (), b"", 0, "", ""), (), ()
        )
        await records.create([task])
        with pytest.raises(Conflict):
            await records.create([task])
        before = await records.read("1")
        assert before is not None
        assert await records.load() == [before]
        await records.save(before, task)
        with pytest.raises(Conflict):
            await records.save(before, task)
        forgotten = {"src": ForgottenIds(BroadcastId(9), frozenset({BroadcastId(12)}))}
        await records.forget([task], forgotten)
        assert await records.read("1") is None
        assert await records.forgotten() == forgotten

    anyio.run(main)
