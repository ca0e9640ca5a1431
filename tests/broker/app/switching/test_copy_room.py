"""A copy to segment files leaves the disk the room that a node needs to serve."""

import errno
import os
from pathlib import Path

import pytest

from broker.app.switching.copy_room import why_no_room
from broker.app.switching.switch_pauses import RENEW_S, RENEW_S_MAX
from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.data_folder import DataFolder
from broker.model.ids import PChannelName, Term
from broker.model.retention.policy import Retention
from broker.ports.space.disk_room import DiskSpace
from broker.process_settings import Settings
from broker.wal.alter.log_copy import CopyDiffers, LogCopy
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.test_switch_dead_ends import copied_until, damage_headers
from tests.broker.app.switching.wal_world import KAFKA, NAMES, Process, World
from tests.contracts.wal_drivers import SMALL

FULL = "the disk has too little room"


def files_of(world: World) -> list[str]:
    return [it for it in world.files.names if it.endswith(".log")]


def bytes_of(world: World) -> int:
    return sum(len(world.files.names[it].cached) for it in files_of(world))


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


def refuse_changes(world: World, *kinds: str, code: int, times: int = 1 << 30) -> None:
    """Let the disk refuse changes of these kinds from now on, so many times; none given: all."""
    left = times

    def refuse(kind: str, path: str) -> None:
        nonlocal left
        world.step()
        if left and (not kinds or kind in kinds):
            left -= 1
            raise OSError(code, os.strerror(code), path)

    world.files.on_step = refuse


def terms_of(process: Process) -> dict[PChannelName, Term]:
    return {name: it.term for name, it in process.logs.items()}


@pytest.mark.parametrize("read_only", [False, True])
async def test_an_abort_ends_where_the_disk_took_nothing_of_the_copy(*, read_only: bool) -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        if read_only:
            refuse_changes(world, code=errno.EROFS)
        else:
            world.files.capacity = 0
        await process.begin(SEGMENTED)
        terms = terms_of(process)
        for _ in range(5):
            await process.look()
        assert all(await troubles(process))
        await process.places.abort()
        assert (await process.until_ended()).stage is AlterStage.ABORTED
        assert terms == terms_of(process)
        assert not [*world.files.names]
        await process.check()


async def test_an_abort_ends_where_its_first_try_removed_files_and_others_took_the_room() -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        terms = terms_of(process)
        for _ in range(3):
            await process.steps()
        assert files_of(world)
        refuse_changes(world, "remove_folder", code=errno.EIO, times=3)
        await process.places.abort()
        await process.look()
        assert not files_of(world)
        world.files.capacity = 0
        assert (await process.until_ended()).stage is AlterStage.ABORTED
        assert terms == terms_of(process)
        await process.check()


async def until_dropping(process: Process) -> None:
    for _ in range(100):
        await process.look()
        alter = await process.places.alter()
        if alter is not None and alter.stage is AlterStage.DROPPING:
            return
    raise AssertionError(await process.places.progress())


async def test_a_log_that_was_switched_from_is_removed_from_a_full_disk() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await until_dropping(process)
    world.files.capacity = 0
    async with world.process() as process:
        await process.start()
        terms = terms_of(process)
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert terms == terms_of(process)
        assert not [*world.files.names]
        await process.check()


async def test_files_that_are_open_as_the_log_are_removed_at_the_next_term_only() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await until_dropping(process)
        terms = terms_of(process)
        for log in process.logs.values():
            log.place = SEGMENTED  # as if the write that switched it had come late
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert {name: term + 1 for name, term in terms.items()} == terms_of(process)
        assert not [*world.files.names]
        await process.check()


async def test_a_disk_that_removes_nothing_restarts_no_pchannel_whose_log_is_in_kafka() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await until_dropping(process)
        terms = terms_of(process)
        refuse_changes(world, code=errno.EROFS)
        for _ in range(int(RENEW_S_MAX)):  # a second each
            await process.look()
        assert all("Read-only file system" in it for it in await troubles(process))
        assert files_of(world)
        world.files.on_step = world.step
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert terms == terms_of(process)
        assert not [*world.files.names]
        await process.check()


async def goes_on_with_room(process: Process) -> None:
    process.world.no_room = ""
    assert (await process.until_ended()).stage is AlterStage.DONE
    await process.check()


async def test_a_history_that_takes_the_room_of_the_copy_is_removed() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA, leaves_history=True)
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert files_of(world)
        world.no_room = FULL
        await process.begin(SEGMENTED)
        terms = terms_of(process)
        for _ in range(3):
            await process.look()
        assert not files_of(world)
        assert not any(it.held for it in process.logs.values()), "nothing needs it yet"
        assert await troubles(process) == {FULL}
        await goes_on_with_room(process)
        assert terms == terms_of(process)


async def test_a_copy_that_differs_and_takes_the_room_is_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(KAFKA)

    async def differ(_: LogCopy) -> None:
        raise CopyDiffers(1, "message 1 is another one")

    async with world.process() as process:
        await process.start()
        for name in NAMES:
            await process.append(name, 60, size=150)
        await process.begin(SEGMENTED)
        await copied_until(process, AlterStage.SWITCHING)
        with monkeypatch.context() as patched:
            patched.setattr(LogCopy, "step", differ)
            await process.look()
        before = bytes_of(world)
        world.no_room = FULL
        for _ in range(int(2 * RENEW_S)):
            await process.look()
        assert all(it.begun for it in (await process.places.progress()).channels.values())
        assert await troubles(process) == {FULL}
        assert bytes_of(world) == len(NAMES) * SMALL.opening_bytes < before
        await goes_on_with_room(process)


async def test_a_copy_that_does_not_open_and_takes_the_room_is_removed() -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        await process.begin(SEGMENTED)
        await copied_until(process, AlterStage.SWITCHING)
    damage_headers(world)
    world.no_room = FULL
    async with world.process() as process:
        await process.start()
        for _ in range(int(2 * RENEW_S)):
            await process.look()
        assert not files_of(world)
        await goes_on_with_room(process)


async def test_a_copy_that_fits_no_more_and_takes_the_room_is_begun_anew() -> None:
    world = await filled(KAFKA)
    async with world.process() as process:
        await process.start()
        for name in NAMES:
            await process.append(name, 60, size=150)
        await process.begin(SEGMENTED)
        await copied_until(process, AlterStage.SWITCHING)
        before = bytes_of(world)
        for name, log in process.logs.items():
            # As an owner that did not know of the switch would have done.
            world.acknowledged[name].clear()
            await log.driver.seal()
            await log.driver.truncate(log.bounds().next_id, Retention(bytes_max=1), 0)
        world.no_room = FULL
        await process.look()
        assert bytes_of(world) == len(NAMES) * SMALL.opening_bytes < before
        await goes_on_with_room(process)


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
