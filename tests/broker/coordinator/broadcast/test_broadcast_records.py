"""Broadcasts in the store: what is written is read back, and nothing else is."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.broadcast.broadcast_records import (
    INCARNATION_KEY,
    BroadcastRecords,
    decode_task,
    encode_task,
    task_key,
)
from broker.coordinator.records import encode_number
from broker.core.cluster.broadcast_state import BroadcastPhase, BroadcastState
from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.meta.memory_store import MemoryMetaStore
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import Appended
from broker.ports.meta import Conflict, MetaError
from tests.broker.coordinator.fakes import ShakyStore

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
    assert decode_task("key", encode_task(task)) == task


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
