"""The switch of a log as a state machine: every path, and any order of what owners do."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.wal_alter import (
    SEGMENTED,
    Alter,
    AlterRefusal,
    AlterStage,
    ChannelAlter,
    Impossible,
    Task,
    aborted,
    advanced,
    began_copy,
    begun,
    copied,
    ended,
    failed,
    of,
    place_of,
    prefix_of,
    shown,
    spoiled,
    switched,
    task_of,
)
from broker.model.ids import MessageId, PChannelName

KAFKA = "kafka://a:1,b:2/tides?replication=3"
UNDER_WAY = (
    AlterStage.COPYING, AlterStage.SWITCHING, AlterStage.DROPPING, AlterStage.ABORTING
)  # fmt: skip
NAMES = tuple(PChannelName(f"p{it}") for it in range(3))


def started(before: Alter | None = None, founded: str = SEGMENTED, target: str = KAFKA) -> Alter:
    alter = begun(before, founded, target, leaves_history=False)
    assert isinstance(alter, Alter)
    return alter


def refused(decided: Alter | AlterRefusal) -> AlterRefusal:
    assert isinstance(decided, AlterRefusal)
    return decided


def test_a_switch_goes_from_where_the_log_is_to_the_target() -> None:
    alter = started()
    assert (alter.number, alter.stage) == (1, AlterStage.COPYING)
    assert (alter.source, alter.target, alter.place) == (SEGMENTED, KAFKA, SEGMENTED)
    done = replace(alter, stage=AlterStage.DONE)
    assert (done.ended, done.place) == (True, KAFKA)
    back = started(done, target=SEGMENTED)
    assert (back.number, back.source, back.place) == (2, KAFKA, KAFKA)


def test_a_cluster_founded_in_kafka_switches_from_there() -> None:
    alter = started(founded=KAFKA, target=SEGMENTED)
    assert (alter.source, alter.target) == (KAFKA, SEGMENTED)


@pytest.mark.parametrize(
    ("before", "target", "why", "said"),
    [
        (None, SEGMENTED, Impossible.SAME_PLACE, "segment files already"),
        (
            AlterStage.DONE,
            "kafka://c:9/tides",
            Impossible.SAME_PLACE,
            "/tides already",
        ),
        (
            AlterStage.DONE,
            "kafka://a:1/other",
            Impossible.BETWEEN_KAFKAS,
            "wal alter --to segmented",
        ),
        (AlterStage.ABORTED, SEGMENTED, Impossible.SAME_PLACE, "segment files already"),
        *[
            (it, SEGMENTED, Impossible.UNDER_WAY, f"already ({it.name.lower()})")
            for it in (
                AlterStage.COPYING,
                AlterStage.SWITCHING,
                AlterStage.DROPPING,
                AlterStage.ABORTING,
            )
        ],
    ],
)
def test_what_cannot_begin_is_refused_with_the_reason(
    before: AlterStage | None, target: str, why: Impossible, said: str
) -> None:
    alter = None if before is None else replace(started(), stage=before)
    refusal = refused(begun(alter, SEGMENTED, target, leaves_history=False))
    assert refusal.why is why
    assert said in refusal.cause


@pytest.mark.parametrize("target", ["kafka://a:1/p", "kafka://b:2/p?replication=1"])
def test_a_log_that_is_there_already_is_told_so(target: str) -> None:
    refusal = refused(begun(None, "kafka://a:1,b:2/p", target, leaves_history=False))
    assert refusal.why is Impossible.SAME_PLACE
    assert refusal.cause == "the log is in kafka://a:1,b:2/p already; nothing was changed"


def test_servers_of_another_kafka_with_the_same_prefix_are_named_with_what_to_do() -> None:
    target = "kafka://x:3,a:1,y:4/p?min_isr=1"
    refusal = refused(begun(None, "kafka://a:1,b:2/p", target, leaves_history=False))
    assert refusal.why is Impossible.SAME_PLACE
    assert refusal.cause == (
        "the log is in kafka://a:1,b:2/p already; nothing was changed: a place is known by its"
        " prefix, not by its servers; if x:3, y:4 are of another Kafka, switch to segment files"
        " first (tidemark wal alter --to segmented), then to that Kafka with another prefix than"
        " 'p'"
    )


def test_a_switch_is_aborted_only_while_all_append_to_the_source() -> None:
    alter = started()
    back = aborted(alter)
    assert isinstance(back, Alter)
    assert (back.stage, back.place) == (AlterStage.ABORTING, SEGMENTED)
    assert aborted(back) == back
    for stage in (AlterStage.SWITCHING, AlterStage.DROPPING):
        assert refused(aborted(replace(alter, stage=stage))).why is Impossible.TOO_LATE
    for none in (
        None,
        replace(alter, stage=AlterStage.DONE),
        replace(alter, stage=AlterStage.ABORTED),
    ):
        assert refused(aborted(none)).why is Impossible.NOT_UNDER_WAY


def test_the_owner_of_a_pchannel_does_what_the_stage_asks_once() -> None:
    alter, mine = started(), began_copy(ChannelAlter(1), MessageId(5))
    assert task_of(None, None) is Task.NOTHING
    done = ended(switched(mine, MessageId(9)))
    for stage, channel, task in (
        (AlterStage.COPYING, None, Task.COPY),
        (AlterStage.SWITCHING, mine, Task.SWITCH),
        (AlterStage.SWITCHING, switched(mine, MessageId(9)), Task.NOTHING),
        (AlterStage.DROPPING, switched(mine, MessageId(9)), Task.DROP),
        (AlterStage.DROPPING, done, Task.NOTHING),
        (AlterStage.ABORTING, mine, Task.DISCARD),
        (AlterStage.ABORTING, ended(mine), Task.NOTHING),
        (AlterStage.DONE, done, Task.NOTHING),
        (AlterStage.ABORTED, mine, Task.NOTHING),
    ):
        assert task_of(replace(alter, stage=stage), channel) is task


def test_what_an_earlier_switch_left_does_not_count() -> None:
    left = ended(switched(began_copy(ChannelAlter(1), MessageId(1)), MessageId(9)))
    alter = replace(started(), number=2)
    assert of(alter, left) == ChannelAlter(2)
    assert place_of(alter, left, SEGMENTED) == SEGMENTED
    assert place_of(None, left, KAFKA) == KAFKA


def test_progress_is_kept_and_a_failure_is_told_until_it_goes_on() -> None:
    mine = failed(ChannelAlter(1), "no Kafka")
    assert mine.trouble == "no Kafka"
    ids = MessageId(8), MessageId(7), MessageId(9)
    mine = copied(began_copy(mine, MessageId(5)), *ids, close=True)
    assert (mine.copied_id, mine.checked_id, mine.source_id) == ids
    assert (mine.begun, mine.close, mine.trouble) == (True, True, "")


def test_a_spoiled_copy_is_begun_anew_and_none_that_is_the_log() -> None:
    mine = spoiled(replace(began_copy(ChannelAlter(1), MessageId(5)), close=True), "it differs")
    assert (mine.begun, mine.close, mine.trouble) == (False, False, "it differs")
    assert began_copy(mine, MessageId(5)).trouble == ""
    with pytest.raises(AssertionError):
        spoiled(switched(began_copy(mine, MessageId(5)), MessageId(9)), "it differs")


def test_places_differ_by_the_prefix_alone() -> None:
    assert prefix_of(KAFKA) == prefix_of("kafka://z:1/tides") == "tides"
    assert prefix_of(SEGMENTED) == ""
    assert (shown(KAFKA), shown(SEGMENTED)) == ("kafka://a:1,b:2/tides", "segment files")


def act(alter: Alter, channel: ChannelAlter | None, chance: Random) -> ChannelAlter:
    """What an owner may record next: some of the time nothing comes of it."""
    now = of(alter, channel)
    match task_of(alter, channel):
        case Task.COPY:
            if not now.begun:
                return began_copy(now, MessageId(1))
            at = MessageId(chance.randrange(1, 100))
            return copied(now, at, at, MessageId(100), close=chance.random() < 0.5)
        case Task.SWITCH:
            return switched(now, MessageId(100)) if now.begun and now.close else now
        case Task.DROP | Task.DISCARD:
            return ended(now)
        case _:
            return now


@given(st.integers(0, 1 << 32), st.booleans())
def test_in_any_order_all_end_in_one_place_and_no_step_is_taken_back(
    seed: int, abort: bool
) -> None:
    alter, chance = started(), Random(seed)
    channels: dict[PChannelName, ChannelAlter | None] = dict.fromkeys(NAMES)
    for _ in range(200):
        name = chance.choice(NAMES)
        before = place_of(alter, channels[name], SEGMENTED)
        channels[name] = act(alter, channels[name], chance)
        after = advanced(alter, channels, NAMES)
        if abort and chance.random() < 0.05 and isinstance(back := aborted(after), Alter):
            after = back
        assert after.stage is alter.stage or not alter.ended
        alter = after
        place = place_of(alter, channels[name], SEGMENTED)
        # From the target nobody returns.
        assert before in (SEGMENTED, place)
        if alter.stage in (AlterStage.COPYING, AlterStage.ABORTING, AlterStage.ABORTED):
            assert all(place_of(alter, it, SEGMENTED) == SEGMENTED for it in channels.values())
    assert alter.ended
    places = {place_of(alter, it, SEGMENTED) for it in channels.values()}
    assert places == {KAFKA if alter.stage is AlterStage.DONE else SEGMENTED}
    assert all(of(alter, it).ended for it in channels.values())
