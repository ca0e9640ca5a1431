"""What the benchmark reads of a server process: CPU time, and how often it begins to wait."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from benchmark.processes import Server

CHILD = """
import sys, time
for line in sys.stdin:
    if line == "spin\\n":
        until = time.process_time() + 0.004
        while time.process_time() < until: pass
    else:
        for _ in range(20): time.sleep(0.001)
    print(time.process_time(), flush=True)
"""

Child = subprocess.Popen[str]


@pytest.fixture
def child() -> Iterator[Child]:
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def did(child: Child, work: str) -> float:
    """The CPU time that it says it used so far, after doing this."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{work}\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def test_the_cpu_time_of_a_server_is_exact_to_less_than_a_step_of_10_ms(child: Child) -> None:
    server = Server("a child", child.pid, None)
    before_s, own_before_s = server.cpu_s(), did(child, "spin")
    own_s = did(child, "spin") - own_before_s
    used_s = server.cpu_s() - before_s
    assert own_s >= 0.004
    assert own_s <= used_s, "what it used is counted, and not in steps"
    assert used_s == pytest.approx(server.cpu_s() - before_s, abs=0.003)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them for other processes")
def test_each_wait_of_a_server_is_counted(child: Child) -> None:
    server = Server("a child", child.pid, None)
    did(child, "spin")
    before = server.wake_ups()
    did(child, "wait")
    after = server.wake_ups()
    assert before is not None
    assert after is not None
    assert after - before >= 20


def test_a_child_that_has_ended_counts_nothing(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("a child", child.pid, None)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    ended = psutil.Process(gone.pid)
    gone.wait()
    monkeypatch.setattr(psutil.Process, "children", lambda _, recursive: [ended])
    did(child, "spin")
    own = psutil.Process(child.pid)
    assert server.cpu_s() >= 0.004
    assert server.resident_bytes() == own.memory_info().rss
    assert server.peak_bytes() >= server.resident_bytes()
