"""What the gate says of a test that hangs, and that the others are run all the same."""

import asyncio
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.long_test import told_when_long

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = f"""
import sys

sys.path.append({str(ROOT)!r})

from tests.gate_workers import scheduler as pytest_xdist_make_scheduler
"""
TESTS = """
import time
from pathlib import Path

def test_before():
    pass

def test_that_hangs():
    with Path("begun").open("a") as file:
        file.write("x")
    time.sleep(60)

def test_behind():
    pass
"""
SETTINGS = """
[pytest]
faulthandler_timeout = 4
faulthandler_exit_on_timeout = true
"""


def test_a_test_that_hangs_is_named_and_run_once_and_all_others_are_run(tmp_path: Path) -> None:
    files = {"conftest.py": CONFTEST, "test_it.py": TESTS, "pytest.ini": SETTINGS}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert run.returncode == 1
    hangs = "test_it.py::test_that_hangs"
    assert f"a worker died amid {hangs}\n" in run.stdout
    assert "1 failed, 2 passed" in run.stdout
    assert (tmp_path / "begun").read_text() == "x"


def test_what_a_dead_worker_had_done_is_not_given_out_again(tmp_path: Path) -> None:
    """It was, and those who got it waited for ever."""
    passing = "".join([f"def test_{it}():\n    pass\n" for it in range(2)])
    before = {f"test_a{it}.py": passing for it in range(20)}
    behind = {f"test_c{it}.py": passing for it in range(20)}
    files = {
        "conftest.py": CONFTEST,
        "test_b.py": TESTS,
        "pytest.ini": SETTINGS,
        **before,
        **behind,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert "1 failed, 82 passed" in run.stdout


def test_of_a_test_that_takes_long_its_tasks_are_shown(tmp_path: Path) -> None:
    """The task sleeps when the time begins, and until it is told of: nothing here is a race."""
    told, before = tmp_path / "told", threading.enumerate()

    def begin(task: asyncio.Task[None]) -> None:
        long.enter_context(told_when_long("some test", file.fileno(), 0.1))
        end_once_told(task)

    def end_once_told(task: asyncio.Task[None]) -> None:
        if any(isinstance(it, threading.Timer) for it in {*threading.enumerate()} - {*before}):
            task.get_loop().call_later(0.01, end_once_told, task)
        else:
            task.cancel()

    async def inner() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.get_loop().call_soon(begin, task)
        await inner()

    with told.open("wb") as file, ExitStack() as long, suppress(asyncio.CancelledError):
        asyncio.run(outer())
    text = told.read_text()
    assert text.startswith("\nstill running after 0.1 s: some test\n")
    line = r"  \S+test_gate_workers.py:\d+ in \S+"
    stack = rf"{line}\.outer\n{line}\.inner\n  \S+tasks.py:\d+ in sleep\n  <.*Future"
    assert re.search(stack, text)
    assert "Thread 0x" in text
    told.unlink()
    with told.open("wb") as file, told_when_long("some test", file.fileno(), 60):
        pass
    assert told.read_text() == ""
