"""Shows Tidemark at work from a bare Python 3.11: flights in, Spark reads them, totals checked.

    python3 scripts/quickstart.py [--without-spark]

Makes its own environment in .quickstart/, finds Java >= 17 or installs it where apt-get works (else
names the command and continues without Spark), and runs scripts/runs/quickstart.py. Needs about
1 GB of disk, most of it Spark. Leaves nothing running.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

from environment import ROOT, Environment, EnvironmentFailed, make
from handover import SCRIPTS, command
from java import JavaMissing, ensure_java

WORK = ROOT / ".quickstart"
STALE_S = 3600


def main() -> int:
    """Set up, run the demonstration, print how long each took; the exit code of the run."""
    parser = argparse.ArgumentParser(description="Flights in, Spark reads them back, all checked.")
    parser.add_argument("--without-spark", action="store_true", help="read with the Python client")
    chosen = parser.parse_args()
    started = time.perf_counter()
    variables = {}
    options = ["--work-dir", str(WORK)]
    extras = "demo,spark"
    try:
        if not chosen.without_spark:
            variables["JAVA_HOME"] = str(ensure_java())
    except JavaMissing as missing:
        print(f"{missing}\nContinuing without Spark: the Python client will read the flights back.")
        chosen.without_spark = True
    if chosen.without_spark:
        options.append("--without-spark")
        extras = "demo,arrow"
    print(
        "Setting up (the first time this downloads about 500 MB, most of it Spark) ...", flush=True
    )
    try:
        environment = make(WORK / "environment", [f".[{extras}]"])
    except EnvironmentFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    ready = time.perf_counter()
    code = demonstrate(environment, variables, options)
    print(f"Set up in {ready - started:.0f} s, ran in {time.perf_counter() - ready:.0f} s.")
    if code == 0:
        print("To continue, read README.md. You can delete .quickstart, which this run made.")
    return code


def demonstrate(environment: Environment, variables: dict[str, str], options: list[str]) -> int:
    """Run the demonstration; it cleans up after Ctrl-C and SIGTERM alike."""
    for left in WORK.glob("run-*"):
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
    line = command(environment, "runs.quickstart", options)
    running = subprocess.Popen(
        line, env={**os.environ, "PYTHONPATH": str(SCRIPTS), **variables}, cwd=WORK
    )
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    while True:
        try:
            code = running.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    sys.exit(main())
