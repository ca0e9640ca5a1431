"""Become another script of this folder, in an environment that is made for it first.

Owns what "this checkout's code" means to the longer runs: it is imported from here, not as it was
installed. Next: scripts/environment.py
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from environment import ROOT, Environment, EnvironmentFailed, make
from java import JavaMissing, ensure_java


def hand_over(script: str) -> NoReturn:
    """Run `scripts/<script>` instead of this program, which was given its arguments.

    SystemExit, with the reason, when no environment can be made.
    """
    environment = _environment(ROOT / ".chaos", ".[arrow,compression]")
    _become(environment, script, [ROOT], {})


def hand_over_with_spark(script: str) -> NoReturn:
    """The same, with Spark and Java."""
    try:
        java = ensure_java()
    except JavaMissing as failure:
        sys.exit(str(failure))
    environment = _environment(ROOT / ".exactly_once", ".[spark]")
    _become(environment, script, [ROOT, ROOT / "broker" / "spark"], {"JAVA_HOME": str(java)})


def _environment(work: Path, requirement: str) -> Environment:
    print(f"an environment in {work}: minutes the first time", file=sys.stderr, flush=True)
    try:
        return make(work / "environment", [requirement])
    except EnvironmentFailed as failure:
        sys.exit(str(failure))


def _become(
    environment: Environment, script: str, imported: Sequence[Path], variables: dict[str, str]
) -> NoReturn:
    paths = os.pathsep.join(map(str, imported))
    command = [str(environment.python), str(ROOT / "scripts" / script), *sys.argv[1:]]
    os.execve(command[0], command, os.environ | {"PYTHONPATH": paths} | variables)
