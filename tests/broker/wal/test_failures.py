"""Disks that fail or fill up: a clear final error, nothing retried, reads served, a way back."""

import errno
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.retention.policy import Retention
from broker.ports.wal import WalError, WriterFailed
from broker.wal.segmented import SegmentedSettings, SegmentedWal
from broker.wal.segmented.log import SegmentedLog
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles, PowerCut
from tests.broker.wal.some_records import group

CHANNEL = PChannelName("c")
SMALL = SegmentedSettings(segment_bytes=8192, first_segment_bytes=8192)


def wal_on(files: FaultyFiles) -> SegmentedWal:
    return SegmentedWal(files, SMALL, background=AtOnce())


async def opened(files: FaultyFiles, term: int = 1) -> SegmentedLog:
    return await wal_on(files).open(CHANNEL, Term(term))


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_a_failed_write_or_sync_is_final_and_never_retried(kind: str) -> None:
    files = FaultyFiles(seed=4)
    log = await opened(files)
    await log.append(group(1, 3))
    files.faults[kind, files.counts[kind] + 1] = errno.EIO
    with pytest.raises(WriterFailed, match="Input/output error") as first:
        await log.append(group(10, 1))
    changes = files.steps
    with pytest.raises(WriterFailed) as second:
        await log.append(group(10, 1))
    assert second.value is first.value, "the same error, for ever"
    assert files.steps == changes, "the disk is left alone"
    assert log.bounds().next_id == 10
    assert await log.read(MessageId(1), 10_000) == group(1, 3), "reads go on"
    await log.close()
    assert not any(p.endswith(".index") for p in files.names), "a failed log is not called sealed"


async def test_the_next_term_reads_back_what_survived_of_a_failed_sync() -> None:
    outcomes = set()
    for seed in range(30):
        files = FaultyFiles(seed=seed)
        log = await opened(files)
        await log.append(group(1, 3))
        files.faults["sync", files.counts["sync"] + 1] = errno.EIO
        with pytest.raises(WriterFailed):
            await log.append(group(10, 3))
        log = await opened(files, 2)
        found = await log.read(MessageId(1), 10_000)
        assert found == group(1, 6)[: len(found)]
        assert len(found) >= 3
        outcomes.add(len(found))
        assert await (await opened(files.after_power_cut(), 3)).read(MessageId(1), 10_000) == found
    assert {3, 6} <= outcomes


async def test_a_full_disk_refuses_appends_serves_reads_and_comes_back_with_space() -> None:
    files = FaultyFiles(capacity=64 << 10)
    log, next_id = await opened(files), 1
    try:
        while True:
            await log.append(group(next_id, 2, size=300))
            next_id += 6
    except WriterFailed as failure:
        assert "No space left" in str(failure)  # noqa: PT017 - the append that fails is not known
    assert next_id > 50
    assert log.bounds().next_id == next_id
    assert await wal_on(files).why_unwritable(CHANNEL) == "No space left on device"
    assert (await log.read(MessageId(next_id - 1), 1))[0].next_id == next_id
    with pytest.raises(WriterFailed, match="No space left"):
        await opened(files, 2)
    assert (await log.read(MessageId(1), 1))[0].base_id == 1, "the old owner may still read"
    files.capacity = 1 << 20
    assert await wal_on(files).why_unwritable(CHANNEL) == ""
    log = await opened(files, 3)
    assert log.bounds().next_id == next_id
    await log.append(group(next_id, 2, term=3))
    await log.close()
    assert sorted(p for p in files.names if p.endswith(".new")) == []


async def test_a_probe_leaves_nothing_behind_whether_it_succeeds_or_not() -> None:
    for fault in (None, "create", "allocate", "write", "sync", "remove"):
        files = FaultyFiles()
        if fault:
            files.faults[fault, 1] = errno.EIO
        why = await wal_on(files).why_unwritable(CHANNEL)
        assert why == ("" if fault is None else "Input/output error")
        assert fault == "remove" or files.names == {}


async def test_a_probe_that_is_killed_leaves_no_space_taken() -> None:
    for steps in range(1, 8):
        files = FaultyFiles()
        files.cut_at = steps
        with suppress(PowerCut):
            await wal_on(files).why_unwritable(CHANNEL)
        assert sum(len(inode.cached) for inode in files.after_kill().names.values()) == 0


async def test_a_quiet_log_without_space_for_a_new_segment_keeps_its_old_data() -> None:
    files = FaultyFiles(capacity=10_000)
    log = await opened(files)
    await log.append(group(1, 2))
    with pytest.raises(WalError, match="cannot allocate"):
        await log.truncate(MessageId(7), Retention(age_ms_max=1), 1 << 40)
    await log.append(group(7, 2))
    assert log.bounds().first_id == 1
    await log.close()


async def test_sealing_an_old_segment_that_fails_half_way_is_final() -> None:
    for kind in ("rename", "sync_folder"):
        files = FaultyFiles()
        log = await opened(files)
        await log.append(group(1, 2))
        files.faults[kind, files.counts[kind] + 1] = errno.EIO
        with pytest.raises(WriterFailed, match="Input/output error"):
            await log.truncate(MessageId(7), Retention(age_ms_max=1), 1 << 40)
        with pytest.raises(WriterFailed):
            await log.append(group(7, 2))
        log = await opened(files, 2)
        assert await log.read(MessageId(1), 10_000) == group(1, 2)
        await log.close()


async def test_truncation_leaves_one_mark_behind_however_often_it_ran() -> None:
    files = FaultyFiles()
    log = await opened(files)
    for at in range(1, 240, 6):
        await log.append(group(at, 2, size=300))
        await log.truncate(MessageId(at + 6), Retention(bytes_max=10_000), 0)
    assert len([path for path in files.names if path.endswith(".first")]) == 1
    await log.close()


async def test_an_opening_that_fails_leaves_nothing_open_and_can_be_repeated() -> None:
    for kind in ("make_folder", "create", "sync_folder", "allocate", "write", "rename"):
        files = FaultyFiles()
        files.faults[kind, 1] = errno.EIO
        with pytest.raises(WriterFailed, match="Input/output error"):
            await opened(files, 1)
        log = await opened(files, 2)
        await log.append(group(1, 1, term=2))
        await log.close()


async def test_a_truncation_that_cannot_remove_files_still_moves_the_first_id() -> None:
    files = FaultyFiles()
    log = await opened(files)
    for at in range(1, 120, 6):
        await log.append(group(at, 2, size=300))
    files.faults["remove", files.counts.get("remove", 0) + 1] = errno.EACCES
    with pytest.raises(Exception, match="cannot remove segments"):
        await log.truncate(MessageId(120), Retention(bytes_max=10_000), 0)
    first_id = log.bounds().first_id
    assert first_id > 1
    log = await opened(files, 2)
    assert log.bounds().first_id == first_id
    assert all(int(p[2:22]) >= first_id for p in files.names if p.endswith(".log"))


@pytest.mark.parametrize(
    ("kind", "code"),
    [("create", errno.ENOSPC), ("sync_folder", errno.EIO), ("remove", errno.EACCES)],
)
async def test_what_a_truncation_could_not_remove_is_removed_by_the_next_one(
    kind: str, code: int
) -> None:
    files = FaultyFiles()
    log = await opened(files)
    for at in range(1, 120, 6):
        await log.append(group(at, 2, size=300))
    files.faults[kind, files.counts.get(kind, 0) + 1] = code
    small = Retention(bytes_max=10_000)
    with pytest.raises(WalError, match="cannot remove segments"):
        await log.truncate(MessageId(120), small, 0)
    assert await log.truncate(MessageId(120), small, 0) > 1
    names = [Path(it).name for it in files.names if it.endswith(".log")]
    assert [it for it in names if int(it[:20]) < log.bounds().first_id] == []
    again = await opened(files, 2)
    assert again.bounds().first_id == log.bounds().first_id


@pytest.mark.parametrize(("kind", "is_called"), [("write", False), ("sync", True)])
async def test_when_written_is_called_although_the_sync_fails_but_not_when_the_write_fails(
    kind: str, is_called: bool
) -> None:
    files = FaultyFiles(seed=4)
    log = await opened(files)
    called: list[str] = []
    await log.append(group(1, 3), lambda: called.append("first"))
    files.faults[kind, files.counts[kind] + 1] = errno.EIO
    with pytest.raises(WriterFailed):
        await log.append(group(10, 1), lambda: called.append("second"))
    assert called == (["first", "second"] if is_called else ["first"])
    assert log.bounds().next_id == 10
    await log.close()


async def test_a_group_reported_as_written_survives_the_death_of_the_process() -> None:
    for seed in range(10):
        files = FaultyFiles(seed=seed)
        log = await opened(files)
        called: list[str] = []
        files.cut_at = files.steps + 3  # a write in two halves, then the sync
        with pytest.raises(PowerCut):
            await log.append(group(1, 3), partial(called.append, "written"))
        assert called == ["written"]
        found = await opened(files.after_kill(), 2)
        assert await found.read(MessageId(1), 10_000) == group(1, 3)
