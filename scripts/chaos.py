"""A coordinator and its nodes under load and under faults from a seed, and whether promises hold.

    python3 scripts/chaos.py --seed 7 --minutes 30 [--faults kill-node,cut] [--nodes 3] [--keep DIR]

Makes its own environment in .chaos/ and hands over to scripts/storm.py, which runs this checkout's
code, prints what happened, and ends with 1 when anything was violated.
"""

import os
import subprocess
import sys

from environment import ROOT, EnvironmentFailed, make

WORK = ROOT / ".chaos"


def main() -> int:
    """Set up and run; the exit code of the storm."""
    try:
        environment = make(WORK / "environment", [".[arrow,compression]"])
    except EnvironmentFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(environment.python), str(ROOT / "scripts" / "storm.py"), *sys.argv[1:]]
    return subprocess.run(command, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
