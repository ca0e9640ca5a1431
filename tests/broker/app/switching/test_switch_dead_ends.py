"""What once kept a switch, or its abort, from ever ending."""

import pytest
from structlog.testing import capture_logs

from broker.app.switching.channel_switch import ABORT_S_MAX
from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.wal.kafka.partition import Unavailable
from broker.wal.segmented.segment import SegmentName
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.wal_world import KAFKA, NAMES, Process, World


def keeping_records(world: World) -> None:
    """Let Kafka refuse to delete records from now on."""

    def in_kafka(what: str) -> None:
        world.step()
        if what == "delete":
            raise Unavailable("not authorized: DeleteRecords")

    world._in_kafka = in_kafka  # type: ignore[method-assign]


def damage_headers(world: World) -> None:
    """Flip a byte in the header of each segment file."""
    for path, inode in world.files.names.items():
        if SegmentName.of(path.rpartition("/")[2]) is not None and path.endswith(".log"):
            inode.cached[20] ^= 0xFF


async def until_ended(process: Process, looks: int) -> AlterStage:
    for _ in range(looks):
        await process.look()
        alter = await process.places.alter()
        if alter is not None and alter.ended:
            return alter.stage
    raise AssertionError(await process.places.progress())


async def test_a_kafka_that_deletes_nothing_keeps_no_copy_from_beginning() -> None:
    world = await filled(SEGMENTED)
    keeping_records(world)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()


async def test_an_abort_ends_where_kafka_deletes_nothing_and_tells_what_is_left() -> None:
    world = await filled(SEGMENTED)
    keeping_records(world)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await process.steps()
        await process.places.abort()
        await process.look()
        assert [process.logs[it].held for it in NAMES] == [False, False]
        stored = {name: it.high for name, it in world.topics.items()}
        with capture_logs() as told:
            assert await until_ended(process, int(2 * ABORT_S_MAX)) is AlterStage.ABORTED
        assert {name: it.high for name, it in world.topics.items()} == stored
        assert sum("may be left in kafka://a:1/tides" in it["event"] for it in told) == len(NAMES)
        await process.check()


@pytest.mark.parametrize("aborts", [False, True])
async def test_files_of_a_left_history_that_do_not_open_keep_no_switch_from_ending(
    *, aborts: bool
) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA, leaves_history=True)
        assert (await process.until_ended()).stage is AlterStage.DONE
    damage_headers(world)
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        if aborts:
            await process.places.abort()
        alter = await process.until_ended()
        assert (alter.stage, alter.place) == (
            (AlterStage.ABORTED, KAFKA) if aborts else (AlterStage.DONE, SEGMENTED)
        )
        await process.check()
        if aborts:
            assert not any(it.endswith(".log") for it in world.files.names)


async def test_a_log_that_was_switched_from_is_removed_although_it_does_not_open() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        for _ in range(100):
            await process.look()
            alter = await process.places.alter()
            if alter is not None and alter.stage is AlterStage.DROPPING:
                break
    damage_headers(world)
    async with world.process() as process:
        await process.start()
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert not any(it.endswith(".log") for it in world.files.names)
        await process.check()
