"""The whole gate, from a bare Python 3.11: every check and every test, through tox.

    python3 scripts/check.py                 all of it
    python3 scripts/check.py --quick         style, types, layers, and the tests that need no broker
    python3 scripts/check.py --env lint      one environment of tox.ini (may be repeated)
    python3 scripts/check.py --env tests -- -k appender      what follows goes to pytest
    python3 scripts/check.py --compiled      all of it on the wheel with compiled scanners

Makes its own environments in .check/ and .tox/, gets Java for Spark, and runs tox in two lanes side
by side. Ends with a summary: time and outcome of each environment, the slowest tests, what the
failed ones said, and pytest's own last lines. Exits non-zero when anything failed.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from environment import ROOT, SOURCE_ONLY, Environment, EnvironmentFailed, build_wheels, make
from java import JavaMissing, ensure_java

GATE = ("tests", "lint", "fresh", "core", "package", "compiled")
QUICK = ("quick", "lint")
# The tests wait for disks and processes half of their time. The second lane, which only computes,
# takes what `tests` leaves of the cores: it runs at the lowest priority, so that it delays no test.
LANES = (("tests", "quick"), ("lint", "fresh", "core", "package", "compiled"))
SECONDS_MAX = 4500  # for one environment; what takes longer hangs
SLOWEST = 10
_PYTEST_SUMMARY = re.compile(
    r"^(?:=+ )?(\d+ (?:passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s.*?)(?: =+)?$"
)
_FAILURE = re.compile(
    r"^(?:_+ (?P<test>\w\w.*?) _+|(?:E {3,}|\| (?=[\w.]+: ))(?P<said>\S.*)"
    r"|(?:FAILED|ERROR) (?P<id>\S.*))$"
)
FAILURE_LINES_MAX = 60
FAILURE_WIDTH_MAX = 400
_DURATION = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +(\S.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class Outcome:
    """What became of one tox environment.

    `durations` are seconds and a test's id; `failures` the last lines of what failed tests said.
    """

    name: str
    returncode: int = 1
    seconds: float = 0.0
    pytest: list[str] = field(default_factory=list)
    durations: list[tuple[float, str]] = field(default_factory=list)
    failures: deque[str] = field(default_factory=lambda: deque(maxlen=FAILURE_LINES_MAX))

    def note(self, line: str) -> None:
        """Keep what the summary repeats of a line of output."""
        plain = _COLOUR.sub("", line).strip()
        if found := _PYTEST_SUMMARY.match(plain):
            self.pytest.append(found[1])
        elif found := _DURATION.match(plain):
            self.durations.append((float(found[1]), found[2]))
        elif found := _FAILURE.match(plain):
            name = found["test"] or found["id"]
            said = name or f"    {found['said']}"
            self.failures.append(said[:FAILURE_WIDTH_MAX])


def main() -> int:
    """Run the gate; 0 when everything passed."""
    options = _options()
    started = time.perf_counter()
    # A shell starts background jobs with Ctrl-C ignored, and the tests that press it inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        home = ensure_java() if "tests" in options.env else None
        tools = make(ROOT / ".check" / "tools", ["tox", "tox-uv-bare", "uv"])
        wheel = _build(tools, compiled=options.compiled)
    except (EnvironmentFailed, JavaMissing) as failure:
        print(failure, file=sys.stderr)
        return 1
    variables = dict(tools.variables)
    if home is not None:
        variables["JAVA_HOME"] = str(home)
    gate = Gate(Environment(tools.path, variables), wheel, options.pytest)
    outcomes = gate.run([[name for name in lane if name in options.env] for lane in LANES])
    return _summary(outcomes, time.perf_counter() - started)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every check and every test of Tidemark.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--quick", action="store_true", help="only what takes less than a minute: before a commit"
    )
    names = sorted({*GATE, *QUICK})
    which.add_argument("--env", action="append", choices=names, help="only this one")
    parser.add_argument(
        "--compiled", action="store_true", help="test the wheel with compiled scanners"
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    options.env = options.env or list(QUICK if options.quick else GATE)
    if options.compiled:
        options.pytest.append("--schemas=compiled")
    return options


def _build(tools: Environment, *, compiled: bool) -> Path:
    """Our wheel, built once for all environments."""
    folder = ROOT / ".check" / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    switch = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"} if compiled else {}
    builder = Environment(tools.path, {**tools.variables, **switch})
    builder.run("uv", "build", "--quiet", "--wheel", "--out-dir", folder)
    return next(folder.glob("*.whl"))


class Gate:
    """Runs tox environments, and ends all of them when it is interrupted."""

    def __init__(self, tools: Environment, wheel: Path, pytest: Sequence[str]) -> None:
        self._tools, self._wheel, self._pytest = tools, wheel, pytest
        self._behind = False
        self._running: set[subprocess.Popen[str]] = set()
        self._output, self._building = threading.Lock(), threading.Lock()

    def run(self, lanes: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the lanes side by side; the first that is not empty shows its output as it comes."""
        lanes = [lane for lane in lanes if lane]
        self._behind = "tests" in lanes[0]
        with ThreadPoolExecutor(len(lanes)) as threads:
            try:
                behind = [threads.submit(self._lane, lane, live=False) for lane in lanes[1:]]
                outcomes = self._lane(lanes[0], live=True)
                for lane in behind:
                    outcomes += lane.result()
            except BaseException:
                for running in tuple(self._running):
                    _end(running)
                raise
        return outcomes

    def _lane(self, names: Sequence[str], *, live: bool) -> list[Outcome]:
        return [self._environment(name, live=live) for name in names]

    def _environment(self, name: str, *, live: bool) -> Outcome:
        """Run one tox environment; its output is shown at once, or whole when it has ended."""
        outcome, started = Outcome(name), time.perf_counter()
        held = [] if live else [f"\n--- {name}\n"]
        if live:
            self._show(f"\n--- {name}\n")
        try:
            # Only these have the extras; `core` and `quick` need not wait for PySpark's wheel.
            if name in ("lint", "fresh", "tests"):
                with self._building:
                    build_wheels(self._tools, SOURCE_ONLY)
            outcome.returncode = self._tox(name, outcome, None if live else held)
        except EnvironmentFailed as failure:
            held.append(f"{failure}\n")
        outcome.seconds = time.perf_counter() - started
        self._show("".join(held))
        return outcome

    def _tox(self, name: str, outcome: Outcome, held: list[str] | None) -> int:
        command = [str(self._tools.bin / "tox"), "run", "-e", name]
        # `compiled` builds a wheel of its own kind.
        command += [] if name == "compiled" else ["--installpkg", str(self._wheel)]
        with (
            subprocess.Popen(
                [*command, *(["--", *self._pytest] if self._pytest else [])],
                cwd=ROOT,
                env=dict(self._tools.variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # A group to end as a whole; in our session, as priorities hold only within one.
                process_group=0,
            ) as running,
            self._deadline(running),
        ):
            if held is not None and self._behind and hasattr(os, "setpriority"):
                os.setpriority(os.PRIO_PROCESS, running.pid, 19)
            assert running.stdout is not None
            for line in running.stdout:
                outcome.note(line)
                if held is None:
                    self._show(line)
                else:
                    held.append(line)
        return running.returncode

    @contextmanager
    def _deadline(self, running: subprocess.Popen[str]) -> Iterator[None]:
        """End the whole group of processes when it hangs, or when we are told to stop."""
        alarm = threading.Timer(SECONDS_MAX, _end, [running])
        alarm.daemon = True
        alarm.start()
        self._running.add(running)
        try:
            yield
        except BaseException:
            _end(running)
            raise
        finally:
            self._running.discard(running)
            alarm.cancel()

    def _show(self, text: str) -> None:
        with self._output:
            print(text, end="", flush=True)


def _end(running: subprocess.Popen[str]) -> None:
    print(f"ending process group {running.pid}: interrupted or over {SECONDS_MAX} s", flush=True)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _summary(outcomes: Sequence[Outcome], seconds: float) -> int:
    """Print one line per environment, the slowest tests, then pytest's own; 0 when all are well."""
    print(f"\n--- summary ({os.cpu_count()} CPUs, Python {sys.version.split()[0]})")
    for outcome in outcomes:
        word = "ok" if outcome.returncode == 0 else "FAILED"
        print(f"{outcome.name:<10}{word:<8}{outcome.seconds:7.1f} s")
    durations = sorted((it for outcome in outcomes for it in outcome.durations), reverse=True)
    if durations:
        print(f"slowest {min(SLOWEST, len(durations))} tests:")
    for took, test in durations[:SLOWEST]:
        print(f"{took:8.1f} s  {test}")
    for outcome in outcomes:
        if outcome.returncode and outcome.failures:
            print(f"{outcome.name}, what failed:")
            print("\n".join([f"    {it}" for it in outcome.failures]))
    for outcome in outcomes:
        for line in outcome.pytest:
            print(f"{outcome.name}: {line}")
    failed = [outcome.name for outcome in outcomes if outcome.returncode]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'} in {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
