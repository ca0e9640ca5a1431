"""The log cut at every byte of its last 8 KiB: reopening keeps every whole record before it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.model.ids import Term
from broker.model.record import Record
from broker.wal.segmented import OsFiles, SegmentedWal
from broker.wal.segmented.segmented_wal import Opened
from broker.wal.segmented.settings import SegmentedSettings
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles, copy_of
from tests.broker.wal.some_records import record
from tests.crash.log_script import CHANNEL, everything

WIDE = SegmentedSettings(first_segment_bytes=32768, index_spacing_bytes=1024)
LAST_BYTES = 8192


def written(opened: Opened) -> tuple[list[Record], list[int]]:
    """Records of many sizes in groups of many sizes, over 8 KiB of them, and where each ends."""
    chance, records, ends = random.Random(3), list[Record](), [opened.writer.view.active.end]
    while ends[-1] < ends[0] + LAST_BYTES + 500:
        batch, next_id = list[Record](), opened.writer.bounds().next_id
        for _ in range(chance.randrange(1, 5)):
            size = chance.choice((0, 1, 30, 200, 600))
            batch.append(record(next_id, messages=chance.randrange(1, 4), size=size))
            next_id = batch[-1].next_id
        opened.writer.append(batch)
        for r in batch:
            length = 68 + len(r.vchannel) + 4 * len(r.sizes) + len(r.body)
            ends.append(ends[-1] + length)
        records += batch
        assert opened.writer.view.active.end == ends[-1]
    return records, ends


def whole_before(cut: int, records: list[Record], ends: list[int]) -> list[Record]:
    return [r for r, end in zip(records, ends[1:], strict=True) if end <= cut]


@pytest.mark.parametrize("behind", ["nothing", "zeros", "noise", "the old bytes, changed"])
def test_every_whole_record_before_a_cut_at_any_byte_is_kept(behind: str) -> None:
    files = FaultyFiles()
    opened = SegmentedWal(files, WIDE, background=AtOnce()).open_now(CHANNEL, Term(1))
    records, ends = written(opened)
    [path] = [p for p in files.names if p.endswith(".log")]
    whole = bytes(files.names[path].cached)
    fill: Callable[[int], bytes] = {
        "nothing": lambda _: b"",
        "zeros": lambda cut: bytes(len(whole) - cut),
        "noise": lambda cut: random.Random(cut).randbytes(300),
        "the old bytes, changed": lambda cut: bytes([whole[cut] ^ 1 << cut % 8]),
    }[behind]
    for cut in range(ends[-1] - LAST_BYTES, ends[-1] + (behind in ("nothing", "zeros"))):
        after = FaultyFiles()
        after.names = {p: copy_of(inode.cached) for p, inode in files.names.items()}
        after.folders = set(files.folders)
        damaged = whole[:cut] + fill(cut)
        after.names[path] = copy_of(bytearray(damaged))
        reopened = SegmentedWal(after, WIDE, background=AtOnce()).open_now(CHANNEL, Term(2))
        same = next((i for i in range(cut, len(damaged)) if damaged[i] != whole[i]), len(damaged))
        kept = whole_before(same, records, ends)  # what follows may be what was there by chance
        assert reopened.writer.bounds().next_id == (kept[-1].next_id if kept else 1)
        if cut % 16 == 0:
            assert everything(reopened) == kept


def test_the_same_holds_on_real_files(tmp_path: Path) -> None:
    wal = SegmentedWal(OsFiles(tmp_path / "whole"), WIDE, background=AtOnce())
    opened = wal.open_now(CHANNEL, Term(1))
    records, ends = written(opened)
    for cut in range(ends[-1] - LAST_BYTES, ends[-1] + 1, 97):
        root = tmp_path / str(cut)
        shutil.copytree(tmp_path / "whole", root)
        [path] = root.glob("*/*.log")
        with path.open("r+b") as file:
            file.truncate(cut)
        reopened = SegmentedWal(OsFiles(root), WIDE, background=AtOnce()).open_now(CHANNEL, Term(2))
        assert everything(reopened) == whole_before(cut, records, ends)
        reopened.writer.append([record(reopened.writer.bounds().next_id, term=2)])
        reopened.writer.close()
    opened.writer.close()
