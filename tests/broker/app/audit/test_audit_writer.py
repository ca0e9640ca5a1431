"""The thread that writes an audit: nothing waits for it, and what it loses is counted and told."""

import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors import SystemClock
from broker.app.audit.audit_files import AuditFiles, AuditLimits
from broker.app.audit.audit_writer import TELL_S, AuditWriter
from broker.core.audit.audit_record import NOBODY, OK, AuditKind, AuditRecord, Decision

GUARD_S = 60.0
LIMITS = AuditLimits(1 << 20, 4)


class LateClock(SystemClock):
    """The machine's clock, as many seconds later as a test wants."""

    later_s = 0.0

    def monotonic_s(self) -> float:
        return SystemClock.monotonic_s() + self.later_s


class HangingFiles(AuditFiles):
    """Files on a disk that hangs until it goes on."""

    def __init__(self, path: Path, limits: AuditLimits) -> None:
        super().__init__(path, limits)
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def append(self, lines: deque[bytes]) -> None:
        self.hangs.set()
        assert self.goes_on.wait(GUARD_S)
        super().append(lines)


def record(number: int) -> AuditRecord:
    return AuditRecord(
        number, AuditKind.ADMIN, "ddl", "/m", NOBODY, "h:1", Decision.ALLOWED, OK,
        named={"number": number},
    )  # fmt: skip


def written(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def numbers(file: Path) -> list[int]:
    return [it["on"]["number"] for it in written(file) if "number" in it["on"]]


async def until(happens: Callable[[], bool]) -> None:
    with anyio.fail_after(GUARD_S):
        while True:
            if happens():
                return
            await anyio.sleep(0.01)


async def test_records_are_lines_in_their_order_when_it_has_closed(tmp_path: Path) -> None:
    file = tmp_path / "single.jsonl"
    writer = AuditWriter(AuditFiles(file, LIMITS))
    for number in range(5000):
        writer.put(record(number))
    await writer.close(GUARD_S)
    assert numbers(file) == list(range(5000))
    assert writer.figures().written == 5000
    assert writer.figures().dropped == 0
    assert writer.warnings() == []


async def test_a_record_is_in_the_file_soon_without_a_close(tmp_path: Path) -> None:
    file = tmp_path / "single.jsonl"
    writer = AuditWriter(AuditFiles(file, LIMITS))
    writer.put(record(1))
    await until(lambda: writer.figures().written == 1)
    assert numbers(file) == [1]
    await writer.close(GUARD_S)


async def test_nobody_waits_for_a_disk_that_hangs_and_what_is_lost_is_told(tmp_path: Path) -> None:
    files = HangingFiles(tmp_path / "single.jsonl", LIMITS)
    clock = LateClock()
    writer = AuditWriter(files, clock, queue_max=10)
    writer.put(record(0))
    await until(files.hangs.is_set)
    for number in range(1, 100):
        writer.put(record(number))
    assert writer.figures().dropped == 89
    assert writer.figures().written == 0
    assert writer.warnings() == ["the audit has dropped 89 lines: the disk did not keep up"]
    files.goes_on.set()
    await until(lambda: writer.figures().written >= 11)
    writer.put(record(100))
    await writer.close(GUARD_S)
    lines = written(files.path)
    assert numbers(files.path) == [*range(11), 100], "what was dropped is the newest"
    (told,) = [it for it in lines if it["outcome"] == "DROPPED"]
    assert (told["action"], told["on"]) == ("audit", {"lines": 89})
    clock.later_s = TELL_S + 1
    assert writer.warnings() == [], "later the figure alone tells of it"
    assert writer.figures().dropped == 89


async def test_a_file_that_cannot_be_written_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "audit"
    folder.write_text("not a folder")
    writer = AuditWriter(AuditFiles(folder / "single.jsonl", LIMITS))
    writer.put(record(1))
    await until(lambda: writer.figures().failing != "")
    assert "single.jsonl: " in writer.figures().failing
    (warning,) = writer.warnings()
    assert warning.startswith(f"the audit cannot be written: {folder}/single.jsonl: ")
    assert warning.endswith("; make room on the disk, or the folder writable")
    folder.unlink()
    await until(lambda: writer.figures().written == 1)
    assert writer.figures().failing == ""
    assert writer.warnings() == []
    writer.put(record(2))
    await writer.close(GUARD_S)
    assert numbers(folder / "single.jsonl") == [1, 2]
    assert caplog.text.count("the audit cannot be written") == 1
    assert caplog.text.count("the audit is written again") == 1


async def test_a_close_gives_up_on_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.write_text("not a folder")
    writer = AuditWriter(AuditFiles(folder / "single.jsonl", LIMITS))
    for number in range(3):
        writer.put(record(number))
    await writer.close(GUARD_S)
    assert writer.figures().dropped == 3
    writer.put(record(4))
    assert writer.figures().dropped == 4, "nobody writes it any more"


async def test_a_close_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = HangingFiles(tmp_path / "single.jsonl", LIMITS)
    writer = AuditWriter(files)
    writer.put(record(1))
    with anyio.fail_after(GUARD_S / 2):
        await writer.close(0.1)
    assert "the audit has lost its last lines" in caplog.text
    files.goes_on.set()
    await until(lambda: writer.figures().written == 1)


async def test_other_limits_hold_from_the_next_line_on(tmp_path: Path) -> None:
    file = tmp_path / "single.jsonl"
    writer = AuditWriter(AuditFiles(file, LIMITS))
    writer.put(record(1))
    await until(lambda: writer.figures().written == 1)
    writer.limit(AuditLimits(100, 2))
    writer.put(record(2))
    writer.put(record(3))
    await writer.close(GUARD_S)
    assert numbers(file) == [3]
    assert numbers(tmp_path / "single.jsonl.1") == [2]
