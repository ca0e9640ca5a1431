"""Source to sink through Spark's state while task, driver and broker are killed: each row once?

    python3 scripts/exactly_once.py [--kills 20] [--seed 1]

Makes its own environment in .exactly_once/, finds Java >= 17 or installs it where apt-get works,
and hands over to scripts/kills.py, which runs this checkout's code, tells each kill, and ends with
1 when the rows that came out are not those that the log asks for.
"""

import os
import subprocess
import sys

from environment import ROOT, EnvironmentFailed, make
from java import JavaMissing, ensure_java

WORK = ROOT / ".exactly_once"


def main() -> int:
    """Set up and run; the exit code of the run."""
    try:
        java = ensure_java()
        environment = make(WORK / "environment", [".[spark]"])
    except (EnvironmentFailed, JavaMissing) as failure:
        print(failure, file=sys.stderr)
        return 1
    paths = os.pathsep.join([str(ROOT), str(ROOT / "broker" / "spark")])
    variables = os.environ | {"PYTHONPATH": paths, "JAVA_HOME": str(java)}
    command = [str(environment.python), str(ROOT / "scripts" / "kills.py"), *sys.argv[1:]]
    return subprocess.run(command, env=variables, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
