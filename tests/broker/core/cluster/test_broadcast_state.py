"""A task's state table, its acks, and which tombstones are forgotten."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.broadcast_state import (
    TRANSITIONS,
    BroadcastPhase,
    BroadcastState,
    BroadcastStep,
    advanced,
    forgettable,
    new_broadcast,
    poisoned,
    retried,
    with_ack,
    with_appended,
)
from broker.core.cluster.resource_locks import locked_keys
from broker.model.broadcast import ADOPTION_KEY, Broadcast, Broadcasted, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import Appended

CONTROL = VChannelName("p_0_vcchan")
V = (VChannelName("p_0_1v0"), CONTROL, VChannelName("p_1_1v1"))
KEY = ResourceKey.collection("flights")


def broadcast(vchannels: tuple[VChannelName, ...] = V, *, sync_up: bool = False) -> Broadcast:
    return Broadcast(5, vchannels, (KEY,), b"body", 4, "key", "content", sync_up)


def place(number: int) -> Appended:
    return Appended(MessageId(number), TimeTick(number * 10), MessageId(number))


PLACES = {vchannel: place(number) for number, vchannel in enumerate(V, start=1)}


def test_the_table_has_these_steps_and_no_others() -> None:
    allowed = {
        (state, step)
        for state in BroadcastPhase
        for step in BroadcastStep
        if (state, step) in TRANSITIONS
    }
    assert allowed == {
        (BroadcastPhase.PENDING, BroadcastStep.FINISH),
        (BroadcastPhase.REPLICATED, BroadcastStep.FINISH),
        (BroadcastPhase.TOMBSTONE, BroadcastStep.FORGET),
    }
    task = new_broadcast(BroadcastId(1), broadcast())
    for state in BroadcastPhase:
        for step in BroadcastStep:
            if (state, step) not in TRANSITIONS:
                with pytest.raises(KeyError):
                    advanced(replace(task, state=state), step, 0)


def test_a_new_task_is_pending_here_and_replicated_when_it_comes_from_elsewhere() -> None:
    own, copied = (new_broadcast(BroadcastId(7), broadcast(), origin) for origin in ("", "src"))
    assert (own.state, own.name, own.to_append) == (BroadcastPhase.PENDING, "7", V)
    assert (copied.state, copied.name, copied.to_append) == (BroadcastPhase.REPLICATED, "src~7", ())
    assert own.unfinished
    assert own.keys == copied.keys == locked_keys([KEY])
    assert own.fingerprint == "content"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(V), st.integers(1, 9))), st.booleans())
def test_the_first_word_about_a_vchannel_counts_whatever_comes_after_it(
    words: list[tuple[bool, VChannelName, int]], sync_up: bool
) -> None:
    """P28, against two dictionaries."""
    task = new_broadcast(BroadcastId(1), broadcast(sync_up=sync_up))
    landed: dict[VChannelName, Appended] = {}
    acked: set[VChannelName] = set()
    for is_ack, vchannel, number in words:
        before = task
        if is_ack:
            known = vchannel in acked
            task = with_ack(task, vchannel, place(number))
            acked.add(vchannel)
        else:
            known = vchannel in landed
            task = with_appended(task, {vchannel: place(number)})
            if not sync_up and not known:
                acked.add(vchannel)
        landed.setdefault(vchannel, place(number))
        assert (task is before) == known
        assert dict(zip(V, task.landed, strict=True)) == {it: landed.get(it) for it in V}
        assert {it for it, done in zip(V, task.acked, strict=True) if done} == acked
        assert task.to_append == tuple(it for it in V if it not in landed)
        assert set(task.to_process) == landed.keys() - acked
    assert task.all_acked == (acked == set(V))
    assert task.outcome() == Broadcasted(
        BroadcastId(1), {it: landed[it] for it in V if it in landed}
    )


def test_an_ack_that_does_not_say_where_counts_only_for_a_copy_that_is_known() -> None:
    task = new_broadcast(BroadcastId(1), broadcast(sync_up=True))
    assert with_ack(task, V[0], None) is task
    landed = with_appended(task, {V[0]: place(1)})
    assert with_ack(landed, V[0], None).acked == (True, False, False)


def test_the_control_channels_ack_gives_a_task_its_place_and_else_the_last_one() -> None:
    task = new_broadcast(BroadcastId(1), broadcast())
    assert with_appended(task, {V[0]: place(1), V[2]: place(3)}).order_tick is None
    assert with_appended(task, {CONTROL: place(2)}).order_tick == 20
    without = new_broadcast(BroadcastId(1), broadcast((V[0], V[2])))
    assert with_appended(without, {V[0]: place(4)}).order_tick is None
    assert with_appended(without, {V[0]: place(4), V[2]: place(3)}).order_tick == 40


def test_poison_is_cured_or_skipped_and_a_tombstone_takes_no_more_acks() -> None:
    task = with_appended(new_broadcast(BroadcastId(1), broadcast()), PLACES)
    assert retried(task) is task
    sick = poisoned(task, "no schema")
    assert (sick.poison, poisoned(task, "").poison) == ("no schema", "no cause given")
    assert retried(sick) == task
    assert (task.may_finish, sick.may_finish) == (True, False)
    done, skipped = (advanced(it, BroadcastStep.FINISH, 5) for it in (task, sick))
    assert (done.skipped, skipped.skipped) == (False, True)
    assert (done.state, done.done_ms, done.broadcast.body) == (BroadcastPhase.TOMBSTONE, 5, b"")
    assert not done.unfinished
    assert not done.may_finish
    assert done.outcome().results == PLACES
    unacked = replace(done, acked=(False,) * 3)
    assert with_ack(unacked, V[0], place(1)) is unacked
    assert advanced(done, BroadcastStep.FORGET, 6).state is BroadcastPhase.DONE


def test_missing_copies_are_appended_unless_the_task_is_in_quarantine() -> None:
    task = new_broadcast(BroadcastId(1), broadcast())
    assert (task.appends, poisoned(task, "no schema").appends) == (True, False)
    assert not with_appended(task, PLACES).appends


def tombstone(number: int, done_ms: int) -> BroadcastState:
    return advanced(new_broadcast(BroadcastId(number), broadcast()), BroadcastStep.FINISH, done_ms)


@given(
    st.lists(st.integers(0, 50), max_size=20), st.integers(0, 60), st.integers(0, 20),
    st.integers(0, 40),
)  # fmt: skip
def test_the_oldest_tombstones_beyond_the_count_and_all_beyond_the_age_are_forgotten(
    times_ms: list[int], now_ms: int, count_max: int, age_ms_max: int
) -> None:
    tombstones = [tombstone(number, done_ms) for number, done_ms in enumerate(times_ms)]
    gone = forgettable(tombstones, now_ms, count_max, age_ms_max)
    kept = [it for it in tombstones if it not in gone]
    assert len(kept) <= count_max
    assert all(now_ms - it.done_ms <= age_ms_max for it in kept)
    for it in gone:
        too_old = now_ms - it.done_ms > age_ms_max
        newer = [other for other in tombstones if (other.done_ms, other.id) > (it.done_ms, it.id)]
        assert too_old or len(newer) >= count_max


def test_tombstones_of_adoptions_go_at_once_and_push_out_no_other() -> None:
    asked = [tombstone(number, 5) for number in range(3)]
    adopt = replace(broadcast(), request_key=f"{ADOPTION_KEY}7")
    adopted = [
        advanced(new_broadcast(BroadcastId(number), adopt), BroadcastStep.FINISH, 9)
        for number in range(3, 9)
    ]
    assert set(forgettable([*asked, *adopted], 9, 3, 100)) == set(adopted)
    assert set(forgettable([*asked, *adopted], 9, 2, 100)) == {asked[0], *adopted}
