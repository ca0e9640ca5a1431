"""The whole gate, from a bare Python 3.11: every check and every test, through tox.

    python3 scripts/check.py                 all of it
    python3 scripts/check.py --env lint      one environment of tox.ini (may be repeated)
    python3 scripts/check.py --env tests -- -k appender      what follows goes to pytest

Makes its own environment in .check/, gets Java for Spark, runs tox, and ends with a summary: time
and outcome of each environment and pytest's own last lines. Exits non-zero when anything failed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from environment import ROOT, SOURCE_ONLY, Environment, EnvironmentFailed, build_wheels, make
from java import JavaMissing, ensure_java

ENVIRONMENTS = ("lint", "tests", "spark", "package")
SECONDS_MAX = 3000  # for one environment; what takes longer hangs
_PYTEST_SUMMARY = re.compile(
    r"^(?:=+ )?(\d+ (?:passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s.*?)(?: =+)?$"
)


@dataclass(slots=True)
class Outcome:
    """What became of one tox environment."""

    name: str
    returncode: int
    seconds: float
    pytest: list[str] = field(default_factory=list)


def main() -> int:
    """Run the gate; 0 when everything passed."""
    options = _options()
    try:
        home = ensure_java() if "spark" in options.env else None
        tools = make(ROOT / ".check" / "tools", ["tox", "tox-uv-bare", "uv"])
        build_wheels(tools, SOURCE_ONLY)
    except (EnvironmentFailed, JavaMissing) as failure:
        print(failure, file=sys.stderr)
        return 1
    variables = dict(tools.variables)
    if home is not None:
        variables["JAVA_HOME"] = str(home)
    tools = Environment(tools.path, variables)
    outcomes = [_run(tools, name, options.pytest) for name in options.env]
    return _summary(outcomes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every check and every test of Tidemark.")
    parser.add_argument("--env", action="append", choices=ENVIRONMENTS, help="only this one")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    options.env = options.env or list(ENVIRONMENTS)
    return options


def _run(tools: Environment, name: str, pytest: Sequence[str]) -> Outcome:
    """Run one tox environment, showing its output as it comes."""
    command = [str(tools.bin / "tox"), "run", "-e", name, *(["--", *pytest] if pytest else [])]
    outcome = Outcome(name, 1, 0.0)
    started = time.perf_counter()
    print(f"\n--- {name}", flush=True)
    with (
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(tools.variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as running,
        _deadline(running),
    ):
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            found = _PYTEST_SUMMARY.match(re.sub(r"\x1b\[[0-9;]*m", "", line).strip())
            if found:
                outcome.pytest.append(found[1])
    outcome.returncode = running.returncode
    outcome.seconds = time.perf_counter() - started
    return outcome


@contextmanager
def _deadline(running: subprocess.Popen[str]) -> Iterator[None]:
    """End the whole group of processes when it hangs, or when we are told to stop."""
    alarm = threading.Timer(SECONDS_MAX, _end, [running])
    alarm.daemon = True
    alarm.start()
    try:
        yield
    except BaseException:
        _end(running)
        raise
    finally:
        alarm.cancel()


def _end(running: subprocess.Popen[str]) -> None:
    print(f"ending process group {running.pid}: interrupted or over {SECONDS_MAX} s", flush=True)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _summary(outcomes: Sequence[Outcome]) -> int:
    """Print one line per environment, then pytest's own; 0 when all are well."""
    print(f"\n--- summary ({os.cpu_count()} CPUs, Python {sys.version.split()[0]})")
    for outcome in outcomes:
        word = "ok" if outcome.returncode == 0 else "FAILED"
        print(f"{outcome.name:<10}{word:<8}{outcome.seconds:7.1f} s")
    for outcome in outcomes:
        for line in outcome.pytest:
            print(f"{outcome.name}: {line}")
    failed = [outcome.name for outcome in outcomes if outcome.returncode]
    total = sum(outcome.seconds for outcome in outcomes)
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'} in {total:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
