"""The reserve of disk space: made when it is scarce, released when it is gone, then restored."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.model.failure import StreamingCode
from broker.ports.space.disk_room import DiskSpace
from broker.wal.disk_reserve import DiskReserve, disk_space

MIB = 1 << 20
SIZE = MIB


@dataclass
class Disk:
    """A disk whose other files take `others` bytes."""

    path: Path
    total: int = 64 * MIB
    others: int = 0
    broken: bool = False

    def space(self, folder: Path) -> DiskSpace:
        assert folder == self.path.parent
        if self.broken:
            raise OSError(5, "Input/output error")
        return DiskSpace(self.total, self.total - self.others - (self.size or 0))

    @property
    def size(self) -> int | None:
        return self.path.stat().st_size if self.path.exists() else None

    def reserve(self, wanted: int = SIZE) -> DiskReserve:
        return DiskReserve(self.path, wanted, self.space)

    def leave(self, free: int) -> None:
        """Others take all but so much."""
        self.others = self.total - free - (self.size or 0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "reserve.space")


def looked(reserve: DiskReserve) -> bool:
    """Whether the disk is full."""
    reserve.look_now()
    return reserve.refusal is not None


def test_a_disk_with_plenty_of_room_has_no_reserve(disk: Disk) -> None:
    assert not looked(disk.reserve())
    assert disk.size is None


def test_the_reserve_is_made_when_room_is_scarce_and_removed_when_there_is_plenty(
    disk: Disk,
) -> None:
    reserve = disk.reserve()
    disk.leave(15 * MIB)
    assert not looked(reserve)
    assert disk.size == SIZE
    disk.leave(31 * MIB)
    assert not looked(reserve)
    assert disk.size == SIZE, "not back and forth"
    disk.leave(33 * MIB)
    assert not looked(reserve)
    assert disk.size is None


def test_the_reserve_is_released_when_almost_nothing_is_left_and_messages_are_refused(
    disk: Disk,
) -> None:
    reserve = disk.reserve()
    disk.leave(10 * MIB)
    assert not looked(reserve)
    disk.leave(MIB // 4)
    assert not looked(reserve)
    disk.leave(MIB // 4 - 1)
    assert looked(reserve)
    assert disk.size == SIZE, "other processes of the folder may not have looked yet"
    assert looked(reserve)
    assert disk.size == 0
    assert reserve.refusal is not None
    assert reserve.refusal.code is StreamingCode.ON_SHUTDOWN
    assert "drop or purge collections" in reserve.refusal.cause
    assert looked(reserve), "what it has released is no room for messages"
    disk.leave(MIB + MIB // 2 - 1)
    assert looked(reserve)
    disk.leave(MIB + MIB // 2)
    assert not looked(reserve)
    assert disk.size == SIZE


def test_a_process_that_was_killed_finds_the_disk_full_and_so_do_others(disk: Disk) -> None:
    disk.leave(10 * MIB)
    assert not looked(disk.reserve())
    disk.leave(0)
    assert looked(disk.reserve())
    assert looked(disk.reserve())
    disk.leave(20 * MIB)
    assert not looked(disk.reserve())
    assert disk.size is None


def test_every_process_refuses_before_one_of_them_releases_the_reserve(disk: Disk) -> None:
    disk.leave(10 * MIB)
    one, other = disk.reserve(), disk.reserve()
    assert not looked(one)
    assert not looked(other)
    disk.leave(0)
    assert looked(one)
    assert other.refusal is None
    assert disk.size == SIZE, "the other one still takes messages, and would fill the room"
    assert looked(other)
    assert looked(one)
    assert disk.size == 0
    assert looked(other)


def test_a_disk_that_has_room_again_before_the_release_keeps_its_reserve(disk: Disk) -> None:
    reserve = disk.reserve()
    disk.leave(10 * MIB)
    assert not looked(reserve)
    disk.leave(0)
    assert looked(reserve)
    disk.leave(MIB // 4)
    assert not looked(reserve)
    assert disk.size == SIZE


def test_a_disk_that_never_had_room_for_a_reserve_takes_messages(disk: Disk) -> None:
    disk.leave(MIB)
    assert not looked(disk.reserve())
    assert disk.size is None


def test_a_reserve_takes_an_eighth_of_a_small_disk_and_none_when_it_is_switched_off(
    disk: Disk,
) -> None:
    disk.leave(32 * MIB)
    assert not looked(disk.reserve(1 << 40))
    assert disk.size == 8 * MIB
    assert not looked(disk.reserve(0))
    assert disk.size is None


def test_a_reserve_whose_allocation_was_cut_short_is_completed(disk: Disk) -> None:
    disk.path.write_bytes(bytes(1000))
    disk.leave(MIB)
    assert not looked(disk.reserve())
    assert disk.size == 1000, "there is no room"
    disk.leave(2 * MIB)
    assert not looked(disk.reserve())
    assert disk.size == SIZE


def test_a_disk_that_cannot_be_looked_at_changes_nothing(disk: Disk) -> None:
    reserve = disk.reserve()
    disk.leave(10 * MIB)
    assert not looked(reserve)
    disk.leave(0)
    assert looked(reserve)
    disk.broken = True
    assert looked(reserve)
    disk.broken = False
    disk.leave(10 * MIB)
    assert not looked(reserve)


async def test_the_space_of_a_real_disk_is_found(tmp_path: Path) -> None:
    found = disk_space(tmp_path)
    assert 0 < found.free <= found.total
    reserve = DiskReserve(tmp_path / "reserve.space", SIZE)
    await reserve.look()
    assert reserve.refusal is None
