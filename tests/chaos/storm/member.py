"""One process of a cluster in a storm: the product's own command, on a disk that can be held up.

The process patches itself and nothing else: a write to a log, in a file or in Kafka, waits for as
long as the harness holds the file that HOLD names, its wall clock is CLOCK_LATE_MS late, and ahead
by what the file of STEP says at the moment, and with SABOTAGE one bug is planted that a storm has
to notice.
"""

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors import SystemClock
from broker.cli.main import run
from broker.wal.segmented.os_files import OsFile
from tests.chaos.storm.sabotages import plant

ROOT = Path(__file__).parents[3]
HOLD, SABOTAGE, STEP = "STORM_HOLD", "STORM_SABOTAGE", "STORM_CLOCK_STEP"
CLOCK_LATE_MS = "STORM_CLOCK_LATE_MS"
"""The variables of its environment."""
STEP_BYTES = 8


def command(arguments: Sequence[str]) -> list[str]:
    """What starts one. The tests come last on its path: an installed wheel is what is tested."""
    start = f"import sys; sys.path.append({str(ROOT)!r})"
    start += "; from tests.chaos.storm.member import main; main()"
    return [sys.executable, "-c", start, *arguments]


def main() -> None:
    wait_for_leave_to_write(os.environ[HOLD])
    if os.environ.get("TIDEMARK_WAL", "").startswith("kafka:"):
        wait_for_leave_to_write_to_kafka(os.environ[HOLD])
    make_late(int(os.environ[CLOCK_LATE_MS]))
    step_by_file(os.environ[STEP])
    plant(os.environ[SABOTAGE])
    run()


def make_late(ms: int) -> None:
    """What day it is, and not how time passes: deadlines and leases are as long as ever."""
    wall_ms = SystemClock.wall_ms
    SystemClock.wall_ms = lambda clock: wall_ms(clock) - ms  # type: ignore[method-assign,assignment]


def step_by_file(path: str) -> None:
    """The same, by what a file says whenever the clock is read."""
    wall_ms = SystemClock.wall_ms

    def stepped(clock: SystemClock) -> int:
        ahead = int.from_bytes(Path(path).read_bytes(), "little", signed=True)
        return wall_ms(clock) + ahead

    SystemClock.wall_ms = stepped  # type: ignore[method-assign,assignment]


def wait_for_leave_to_write(path: str) -> None:
    """From now on each write takes a shared lock first, which costs three system calls.

    A lock and no flag: the kernel wakes who waits, and lets go when the harness dies.
    """
    write_durable = OsFile.write_durable

    def held(file: OsFile, offset: int, parts: Sequence[bytes]) -> None:
        with _leave(path):
            write_durable(file, offset, parts)

    OsFile.write_durable = held  # type: ignore[method-assign,assignment]


def wait_for_leave_to_write_to_kafka(path: str) -> None:
    """The same for appends to a topic: they wait before librdkafka has them."""
    # Not at the top: clients of Kafka may be missing where the log is in files.
    from broker.wal.kafka.confluent_partition import ConfluentPartition  # noqa: PLC0415

    append = ConfluentPartition.append

    def held(partition: ConfluentPartition, key: bytes, value: bytes, stamp_ms: int) -> int:
        with _leave(path):
            return append(partition, key, value, stamp_ms)

    ConfluentPartition.append = held  # type: ignore[method-assign, assignment]


@contextmanager
def _leave(path: str) -> Iterator[None]:
    leave = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(leave, fcntl.LOCK_SH)
        yield
    finally:
        os.close(leave)


if __name__ == "__main__":
    main()
