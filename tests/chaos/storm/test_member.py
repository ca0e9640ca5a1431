"""A process of a storm writes when it may, and has the bug that was asked for."""

import fcntl
import threading
from pathlib import Path

import pytest

from actors import SystemClock
from broker.wal.kafka.confluent_partition import ConfluentPartition
from broker.wal.segmented.os_files import OsFile, OsFiles
from tests.chaos.storm.member import (
    STEP_BYTES,
    make_late,
    step_by_file,
    wait_for_leave_to_write,
    wait_for_leave_to_write_to_kafka,
)
from tests.chaos.storm.sabotages import SABOTAGES, planted_in_clients

GUARD_S = 60.0


def test_writes_wait_while_they_are_held_and_come_through_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsFile, "write_durable", OsFile.write_durable)  # put back afterwards
    hold = tmp_path / "hold"
    hold.touch()
    wait_for_leave_to_write(str(hold))
    file = OsFiles(tmp_path).open("log", create=True)
    file.write_durable(0, [b"before "])
    with hold.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=file.write_durable, args=(7, [b"after"]), daemon=True)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert file.read(0, 99) == b"before "
    writer.join(GUARD_S)
    assert file.read(0, 99) == b"before after"
    file.close()


def test_appends_to_kafka_wait_before_its_client_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def append(_: ConfluentPartition, key: bytes, value: bytes, stamp_ms: int) -> int:
        sent.append(value)
        return len(sent)

    monkeypatch.setattr(ConfluentPartition, "append", append)  # put back afterwards
    hold = tmp_path / "hold"
    hold.touch()
    wait_for_leave_to_write_to_kafka(str(hold))
    partition = ConfluentPartition.__new__(ConfluentPartition)
    assert partition.append(b"", b"before", 0) == 1
    with hold.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=partition.append, args=(b"", b"after", 0), daemon=True)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert sent == [b"before"]
    writer.join(GUARD_S)
    assert sent == [b"before", b"after"]


def test_a_late_clock_tells_an_earlier_day_and_counts_seconds_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SystemClock, "wall_ms", SystemClock.wall_ms)  # put back afterwards
    clock = SystemClock()
    before_ms, before_s = clock.wall_ms(), clock.monotonic_s()
    make_late(3_600_000)
    assert clock.wall_ms() < before_ms
    assert clock.monotonic_s() >= before_s


def test_a_clock_steps_by_what_a_file_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "wall_ms", SystemClock.wall_ms)  # put back afterwards
    clock, step = SystemClock(), tmp_path / "step"
    step.write_bytes((0).to_bytes(STEP_BYTES, "little", signed=True))
    step_by_file(str(step))
    before_ms, before_s = clock.wall_ms(), clock.monotonic_s()
    step.write_bytes((-3_600_000).to_bytes(STEP_BYTES, "little", signed=True))
    assert clock.wall_ms() < before_ms
    assert clock.monotonic_s() >= before_s


@pytest.mark.parametrize("name", sorted(SABOTAGES))
def test_each_bug_replaces_what_is_there(name: str) -> None:
    for owner, attribute, replacement in SABOTAGES[name].patches():
        assert getattr(owner, attribute) is not replacement


def test_bugs_of_clients_are_taken_back() -> None:
    for name, sabotage in SABOTAGES.items():
        patched = [(owner, attribute) for owner, attribute, _ in sabotage.patches()]
        before = [getattr(*it) for it in patched]
        with planted_in_clients(name):
            assert ([getattr(*it) for it in patched] != before) == sabotage.harness
        assert [getattr(*it) for it in patched] == before
