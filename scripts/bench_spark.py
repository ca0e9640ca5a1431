"""How fast Spark reads from Tidemark here, and writes: rows of Arrow and messages.

    python3 scripts/bench_spark.py [--rounds 5] [--rows 1000000] [--only Arrow] [--out FOLDER]

Makes its own environment in .bench_spark/, finds Java >= 17, and hands over to
scripts/measure_spark.py, which prints a table and writes bench_spark.json: into .bench_spark/, when
no folder is given. Two shared cores make single figures noisy: medians of one run are meant.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

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
    out, arguments = _out(sys.argv[1:])
    script = ROOT / "scripts" / "measure_spark.py"
    command = [str(environment.python), str(script), *arguments, "--out", str(out)]
    variables = {**os.environ, "JAVA_HOME": str(java)}
    return subprocess.run(command, cwd=WORK, env=variables, check=False).returncode


def _out(arguments: list[str]) -> tuple[Path, list[str]]:
    """Where results go, seen from here and not from where it is measured; and all the rest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=WORK)
    options, rest = parser.parse_known_args(arguments)
    return options.out.resolve(), rest


if __name__ == "__main__":
    sys.exit(main())
