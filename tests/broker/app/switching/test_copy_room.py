"""A copy to segment files leaves the disk the room that a node needs to serve."""

from pathlib import Path

import pytest

from broker.app.switching.copy_room import why_no_room
from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.data_folder import DataFolder
from broker.ports.space.disk_room import DiskSpace
from broker.process_settings import Settings
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.wal_world import KAFKA, NAMES, Process, World

FULL = "the disk has too little room"


def files_of(world: World) -> list[str]:
    return [it for it in world.files.names if it.endswith(".log")]


async def troubles(process: Process) -> set[str]:
    return {it.trouble for it in (await process.places.progress()).channels.values()}


async def test_a_copy_waits_for_room_without_a_restart_and_goes_on_by_itself() -> None:
    world = await filled(KAFKA)
    world.no_room = FULL
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        terms = {name: it.term for name, it in process.logs.items()}
        for _ in range(30):
            await process.look()
        assert await troubles(process) == {FULL}
        assert files_of(world) == []
        world.no_room = ""
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert terms == {name: it.term for name, it in process.logs.items()}
        await process.check()


async def test_an_abort_removes_the_copy_that_has_filled_the_disk() -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        world.files.capacity = 10_000
        await process.begin(SEGMENTED)
        for _ in range(5):
            await process.look()
        assert any("No space left" in it for it in await troubles(process))
        assert files_of(world)
        world.files.capacity -= world.files.free_bytes()  # others take the rest
        await process.places.abort()
        alter = await process.until_ended()
        assert (alter.stage, alter.place) == (AlterStage.ABORTED, KAFKA)
        assert not [*world.files.names]
        assert [process.logs[it].held for it in NAMES] == [False, False]
        await process.check()


@pytest.mark.parametrize(
    ("place", "total", "free", "refused"),
    [
        (SEGMENTED, 1000, 324, False),
        (SEGMENTED, 1000, 323, True),
        (SEGMENTED, 400, 249, True),  # of a small disk the reserve has an eighth
        (SEGMENTED, 400, 250, False),
        (KAFKA, 1000, 0, False),
    ],
)
def test_what_is_left_is_the_reserve_and_two_segments(
    place: str, total: int, free: int, *, refused: bool, tmp_path: Path
) -> None:
    mib = 1 << 20
    given = Settings(reserve_bytes=124 * mib, segment_bytes=100 * mib)
    space = DiskSpace(total * mib, free * mib)
    told = why_no_room(given, DataFolder(tmp_path), place, lambda _: space)
    assert bool(told) is refused
    if refused:
        assert str(tmp_path) in told
        assert "make room" in told


def test_a_disk_that_cannot_be_asked_takes_no_copy(tmp_path: Path) -> None:
    def fail(path: Path) -> DiskSpace:
        raise OSError(5, "Input/output error")

    told = why_no_room(Settings(), DataFolder(tmp_path), SEGMENTED, fail)
    assert "Input/output error" in told
