"""Measures how fast Spark reads from Tidemark and writes to it: rows of Arrow, and messages.

    python3 scripts/bench_spark.py [--rounds 5] [--rows 1000000] [--only Arrow] [--out FOLDER]

Makes its own environment in .bench_spark/, finds Java 17 or newer, and runs
scripts/benchmark/bench_spark.py, which prints a table and writes bench_spark.json (into
.bench_spark/ without --out). Single figures on two shared cores are noisy; compare medians.
"""

import os
import sys
from typing import NoReturn

from environment import ROOT, EnvironmentFailed, make
from handover import absolute_out, become
from java import JavaMissing, ensure_java

WORK = ROOT / ".bench_spark"


def main() -> NoReturn:
    """Make the environment and become the measurement; exit code 1 when that or Java fails."""
    WORK.mkdir(exist_ok=True)
    try:
        java = ensure_java()
        environment = make(WORK / "environment", [".[spark]"])
    except (JavaMissing, EnvironmentFailed) as failure:
        sys.exit(str(failure))
    out, arguments = absolute_out(sys.argv[1:], WORK)
    os.chdir(WORK)
    variables = {"JAVA_HOME": str(java)}
    become(
        environment,
        "benchmark.bench_spark",
        [*arguments, "--out", str(out)],
        variables=variables,
    )


if __name__ == "__main__":
    main()
