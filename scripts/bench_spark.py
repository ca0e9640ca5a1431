"""How fast Spark reads from Tidemark here, and writes: rows of Arrow and messages.

    python3 scripts/bench_spark.py [--rounds 5] [--rows 1000000] [--only Arrow] [--out FOLDER]

Makes its own environment in .bench_spark/, finds Java >= 17, and hands over to
scripts/measure_spark.py, which prints a table and writes bench_spark.json. Two shared cores make
single figures noisy: medians of one run are meant.
"""

import os
import subprocess
import sys

from environment import ROOT, EnvironmentFailed, make
from java import JavaMissing, ensure_java

WORK = ROOT / ".bench_spark"


def main() -> int:
    """Set up and measure; the exit code of the measurement."""
    WORK.mkdir(exist_ok=True)
    try:
        java = ensure_java()
        environment = make(WORK / "environment", [".[spark]"])
    except (JavaMissing, EnvironmentFailed) as failure:
        print(failure, file=sys.stderr)
        return 1
    command = [str(environment.python), str(ROOT / "scripts" / "measure_spark.py"), *sys.argv[1:]]
    variables = {**os.environ, "JAVA_HOME": str(java)}
    return subprocess.run(command, cwd=WORK, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
