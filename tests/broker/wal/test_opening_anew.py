"""Segment files whose messages are of no use are opened without being read."""

import errno

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.ports.wal import Corrupt, Fenced, WalError
from broker.wal.segmented import SegmentedWal
from tests.broker.wal.faulty_files import FaultyFiles
from tests.broker.wal.some_records import group
from tests.contracts.wal_drivers import SMALL, read_all

CHANNEL = PChannelName("c")


async def filled(files: FaultyFiles, term: int) -> None:
    log = await SegmentedWal(files, SMALL).open(CHANNEL, Term(term))
    await log.append(group(log.bounds().next_id, 40, term=term, size=900))
    await log.close()


async def test_damaged_files_are_removed_and_the_log_begins_anew() -> None:
    files = FaultyFiles()
    await filled(files, 1)
    for path, inode in files.names.items():
        if path.endswith(".log"):
            inode.cached[20] ^= 0xFF
    wal = SegmentedWal(files, SMALL)
    with pytest.raises(Corrupt):
        await wal.open(CHANNEL, Term(2))
    log = await wal.open_anew(CHANNEL, Term(3))
    await log.begin_anew(MessageId(40), TimeTick(7))
    copies = group(40, 3)
    await log.append_copies(copies, copies[-1].next_id, copies[-1].last_tick)
    await log.close()
    again = await wal.open(CHANNEL, Term(4))
    assert await read_all(again) == copies
    await again.close()


async def test_a_fenced_owner_removes_nothing() -> None:
    files = FaultyFiles()
    await filled(files, 5)
    wal = SegmentedWal(files, SMALL)
    with pytest.raises(Fenced):
        await wal.open_anew(CHANNEL, Term(4))
    opened = list[SegmentedWal]()

    def overtake(kind: str, path: str) -> None:
        # Behind the claim of term 6, a newer owner claims the log.
        if path.endswith(".term") and kind == "remove" and not opened:
            opened.append(wal)
            SegmentedWal(files, SMALL).open_now(CHANNEL, Term(7)).close()

    files.on_step = overtake
    with pytest.raises(Fenced):
        await wal.open_anew(CHANNEL, Term(6))
    assert opened
    log = await wal.open(CHANNEL, Term(8))
    assert await read_all(log) == group(1, 40, term=5, size=900)
    await log.close()


async def test_files_are_removed_at_the_term_that_had_them_open() -> None:
    files = FaultyFiles()
    wal = SegmentedWal(files, SMALL)
    await filled(files, 5)
    files.capacity = 0
    assert await wal.remove(CHANNEL, Term(5))
    assert not files.names
    steps = files.steps
    assert await wal.remove(CHANNEL, Term(5))
    assert files.steps == steps, "nothing is left, so nothing is changed"
    files.capacity = None
    await filled(files, 5)


async def test_a_removal_that_failed_is_tried_again_at_the_same_term() -> None:
    files = FaultyFiles()
    await filled(files, 5)
    whole = files.after_kill()
    await SegmentedWal(whole, SMALL).remove(CHANNEL, Term(6))
    for number in range(1, whole.steps + 1):
        tried = files.after_kill()

        def refuse(kind: str, path: str, tried: FaultyFiles = tried, at: int = number) -> None:
            if tried.steps + 1 == at:
                tried.on_step = lambda kind, path: None
                raise OSError(errno.EIO, "Input/output error")

        tried.on_step = refuse
        wal = SegmentedWal(tried, SMALL)
        with pytest.raises(WalError, match="cannot remove segment files") as refused:
            await wal.remove(CHANNEL, Term(6))
        assert type(refused.value) is WalError
        await wal.remove(CHANNEL, Term(6))
        assert not tried.names


async def test_a_fenced_owner_removes_no_log() -> None:
    files = FaultyFiles()
    await filled(files, 5)
    wal = SegmentedWal(files, SMALL)
    with pytest.raises(Fenced):
        await wal.remove(CHANNEL, Term(4))
    opened = list[int]()

    def overtake(kind: str, path: str) -> None:
        if kind == "remove" and path.endswith("0005.term") and not opened:
            opened.append(7)
            SegmentedWal(files, SMALL).open_now(CHANNEL, Term(7)).close()

    files.on_step = overtake
    with pytest.raises(Fenced):
        await wal.remove(CHANNEL, Term(6))
    assert opened
    with pytest.raises(Fenced):
        await wal.remove(CHANNEL, Term(6))
    log = await wal.open(CHANNEL, Term(8))
    assert await read_all(log) == group(1, 40, term=5, size=900)
    await log.close()
