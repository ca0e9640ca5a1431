"""Switches over logs in memory: with appends, with a kill at any step, there and back."""

import pytest

from broker.app.stores.stored_places import Overtaken
from broker.coordinator.records import encode_member, node_key
from broker.core.cluster.node_leases import NodeMember
from broker.core.cluster.wal_alter import SEGMENTED, AlterStage, switched
from broker.model.ids import MessageId, Term
from tests.broker.app.switching.wal_world import KAFKA, NAMES, NODE, World

PLACES = (SEGMENTED, KAFKA)
KILLS = 40
"""So many of the steps of a switch are tried."""


def other(place: str) -> str:
    return KAFKA if place == SEGMENTED else SEGMENTED


async def filled(founded: str) -> World:
    world = World(founded=founded)
    async with world.process() as process:
        await process.start()
        for name in NAMES:
            await process.append(name, 40, size=150)
    return world


@pytest.mark.parametrize("founded", PLACES)
async def test_a_switch_moves_all_and_ids_go_on(founded: str) -> None:
    world = await filled(founded)
    async with world.process() as process:
        await process.start()
        await process.begin(other(founded))
        alter = await process.until_ended()
        assert (alter.stage, alter.place) == (AlterStage.DONE, other(founded))
        for name in NAMES:
            assert process.logs[name].place == other(founded)
            await process.append(name, 3)
        await process.check()
        assert world.marked == other(founded)
    async with world.process() as process:
        await process.start()
        await process.check()
        await process.begin(founded)
        assert (await process.until_ended()).place == founded
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()
    if founded == SEGMENTED:
        assert all(it.high - it.low <= 3 for it in world.topics.values()), "the topics are empty"


@pytest.mark.parametrize("founded", PLACES)
async def test_a_kill_at_any_step_changes_nothing_but_the_time_it_takes(founded: str) -> None:
    whole = await filled(founded)
    before = whole.steps
    async with whole.process() as process:
        await process.start()
        await process.begin(other(founded))
        await process.until_ended()
    steps = whole.steps - before
    for kill in range(1, steps, max(1, steps // KILLS)):
        world = await filled(founded)
        async with world.process(kill) as process:
            await process.start()
            await process.begin(other(founded))
            await process.until_ended()
        async with world.process(kill // 2) as process:
            await process.start()
            await process.check()
            await process.begin(other(founded))
            await process.until_ended()
        async with world.process() as process:
            await process.start()
            await process.check()
            await process.begin(other(founded))
            alter = await process.until_ended()
            assert (alter.stage, alter.place) == (AlterStage.DONE, other(founded)), kill
            await process.check()
            assert {it.place for it in process.logs.values()} == {other(founded)}


@pytest.mark.parametrize("founded", PLACES)
async def test_an_abort_leaves_the_log_as_it_was(founded: str) -> None:
    world = await filled(founded)
    for kill in (3, 20, 60, 100, 1 << 40):
        async with world.process(kill) as process:
            await process.start()
            await process.begin(other(founded))
            await process.steps()
            await process.places.abort()
            await process.until_ended()
        async with world.process() as process:
            await process.start()
            await process.check()
            await process.begin(other(founded))
            await process.places.abort()
            assert (await process.until_ended()).stage is AlterStage.ABORTED
            for name in NAMES:
                assert process.logs[name].place == founded
                await process.append(name)
            await process.check()
    assert not [it for it in world.files.names if other(founded) == SEGMENTED]


async def test_history_is_left_when_that_is_asked_for() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA, leaves_history=True)
        await process.until_ended()
        assert [it for it in world.files.names if it.endswith(".log")]
        await process.begin(SEGMENTED)
        assert (await process.until_ended()).place == SEGMENTED
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()


async def test_nothing_is_removed_while_a_log_is_copied() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        log = process.logs[NAMES[0]]
        assert (bool(log.segments()), log.gives_back) == (True, True)
        await process.begin(KAFKA)
        await process.steps()
        assert (bool(log.segments()), log.gives_back) == (False, False)
        await process.places.abort()
        await process.until_ended()
        assert log.segments()


async def test_while_the_target_is_away_appends_stay_and_the_copy_goes_on_later() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await process.steps()
        world.away = True
        for name in NAMES:
            await process.append(name, 5)
        for _ in range(3):
            await process.look()
            for name in NAMES:
                await process.append(name)
        troubles = [it.trouble for it in (await process.places.progress()).channels.values()]
        assert all("Kafka is away" in it for it in troubles), troubles
        assert [it.partition(":")[0] for it in process.switch.warnings()] == [
            "the switch of the log does not go on"
        ] * 2
        assert process.wal.warnings() == []
        assert {it.place for it in process.logs.values()} == {SEGMENTED}
        world.away = False
        assert (await process.until_ended()).place == KAFKA
        await process.check()
        assert not any(it.trouble for it in (await process.places.progress()).channels.values())
        assert not process.switch.warnings()


async def test_an_owner_of_before_cannot_switch_a_pchannel() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        old = process.logs[NAMES[0]]
        await process.look()
        alter = await process.places.advance()
        assert alter is not None
        assert alter.stage is AlterStage.SWITCHING
        async with world.process() as newer:
            await newer.start()
            for term in (old.term, Term(old.term - 1)):
                with pytest.raises(Overtaken):
                    await process.places.change(
                        NAMES[0], term, AlterStage.SWITCHING, lambda it: switched(it, MessageId(9))
                    )
            assert (await newer.until_ended()).place == KAFKA
            await newer.check()


async def test_a_node_that_knows_no_switches_holds_up_the_point_of_no_return() -> None:
    world = await filled(SEGMENTED)
    older = NodeMember(NODE, "a:1", 1, "", 1, 0.0, knows_places=False)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await world.store.write({node_key(NODE): encode_member(older)})
        for _ in range(5):
            await process.look()
        alter = await process.places.alter()
        assert alter is not None
        assert alter.stage is AlterStage.COPYING
        await world.store.write({}, deletes=[node_key(NODE)])
        assert (await process.until_ended()).place == KAFKA


async def test_a_kafka_that_is_gone_for_good_does_not_hold_up_the_end() -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        while (await process.places.progress()).alter.stage is not AlterStage.DROPPING:  # type: ignore[union-attr]
            await process.look()
        world.away = True
        for _ in range(5):
            await process.look()
        found = await process.places.progress()
        assert found.alter is not None
        assert found.alter.stage is AlterStage.DROPPING
        assert all("Kafka is away" in it.trouble for it in found.channels.values())
        assert not any(it.held for it in process.logs.values()), "retention goes on"
        process.looks += 700
        assert (await process.until_ended()).place == SEGMENTED
        await process.check()
