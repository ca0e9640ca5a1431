"""What once kept a switch, or its abort, from ever ending."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from broker.app.switching.channel_switch import ABORT_S_MAX
from broker.app.switching.switch_pauses import RENEW_S
from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.ports.wal import Corrupt
from broker.wal.kafka.kafka_log import KafkaLog
from broker.wal.kafka.partition import Unavailable
from broker.wal.segmented.log import SegmentedLog
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


async def copied_until(process: Process, stage: AlterStage) -> None:
    """Until all is in the target, and the switch is in this stage; then the log goes on."""
    for _ in range(100):
        await process.steps()
        progress = await process.places.progress()
        if all(progress.channels[it].close for it in NAMES):
            break
    if stage is AlterStage.SWITCHING:
        assert await process.places.advance()
    alter = await process.places.alter()
    assert alter is not None
    assert alter.stage is stage
    for name in NAMES:
        await process.append(name)


@pytest.mark.parametrize("stage", [AlterStage.COPYING, AlterStage.SWITCHING])
async def test_a_copy_that_does_not_open_any_more_is_begun_anew(stage: AlterStage) -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        await copied_until(process, stage)
    damage_headers(world)
    async with world.process() as process:
        await process.start()
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()


@pytest.mark.parametrize("stage", [AlterStage.COPYING, AlterStage.SWITCHING])
async def test_a_copy_that_differs_is_begun_anew_after_a_growing_pause(
    stage: AlterStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await filled(KAFKA)
    append_copies, wrong = SegmentedLog.append_copies, list[int]()

    async def append_wrong(
        log: SegmentedLog, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        if len(wrong) < 6 and records:
            wrong.append(process.looks)
            records = [replace(records[0], vchannel="other"), *records[1:]]
        await append_copies(log, records, until_id, until_tick)

    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        await copied_until(process, stage)
        monkeypatch.setattr(SegmentedLog, "append_copies", append_wrong)
        terms = {name: it.term for name, it in process.logs.items()}
        assert await until_ended(process, 200) is AlterStage.DONE
        assert len(wrong) == 6
        assert wrong[-1] - wrong[0] >= RENEW_S + 2 * RENEW_S
        assert terms == {name: it.term for name, it in process.logs.items()}
        await process.check()


async def test_a_log_that_cannot_be_read_spoils_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await filled(KAFKA)

    async def read(*_: object) -> Sequence[Record]:
        raise Corrupt("some.topic", 7, "a checksum does not match")

    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        await copied_until(process, AlterStage.SWITCHING)
        monkeypatch.setattr(KafkaLog, "read", read)
        for _ in range(5):
            await process.look()
        progress = await process.places.progress()
        for name in NAMES:
            channel = progress.channels[name]
            assert channel.begun
            assert "a checksum does not match" in channel.trouble


@pytest.mark.parametrize("stage", [AlterStage.COPYING, AlterStage.SWITCHING])
async def test_a_copy_in_a_topic_that_was_trimmed_by_hand_is_begun_anew(stage: AlterStage) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await copied_until(process, stage)
    for topic in world.topics.values():
        topic.drop_before(topic.low + 4)
    async with world.process() as process:
        await process.start()
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()
