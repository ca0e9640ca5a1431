"""Replaces a script's process by the body of its run, in an environment made for it first.

`scripts/NAME.py` needs nothing but the standard library; its body (`runs/NAME.py` or
`benchmark/NAME.py`) needs what is installed here.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from environment import ROOT, Environment, EnvironmentFailed, make
from java import JavaMissing, ensure_java

SCRIPTS = ROOT / "scripts"


def hand_over(body: str, *, work: str = ".chaos", extras: str = "arrow,compression") -> NoReturn:
    """Run the module `body`, with the arguments of this process, on the checkout's code.

    `work`: the folder of the environment; `extras`: of Tidemark, what is installed there. Raises
    SystemExit with the reason when no environment can be made.
    """
    environment = _environment(ROOT / work, f".[{extras}]")
    become(environment, body, sys.argv[1:], imported=[ROOT])


def hand_over_with_spark(
    body: str, *, work: str = ".exactly_once", extras: str = "spark"
) -> NoReturn:
    """The same, with Spark and Java in the environment."""
    try:
        java = ensure_java()
    except JavaMissing as failure:
        sys.exit(str(failure))
    environment = _environment(ROOT / work, f".[{extras}]")
    imported = [ROOT, ROOT / "broker" / "spark"]
    become(environment, body, sys.argv[1:], imported=imported, variables={"JAVA_HOME": str(java)})


def become(
    environment: Environment,
    body: str,
    arguments: Sequence[str],
    *,
    imported: Sequence[Path] = (),
    variables: dict[str, str] | None = None,
) -> NoReturn:
    """Replace this process by the module `body`. `imported`: folders to import from first.

    Without `imported` the body runs on Tidemark as it is installed in the environment.
    """
    paths = os.pathsep.join(map(str, [*imported, SCRIPTS]))
    os.execve(
        environment.python,
        command(environment, body, arguments),
        os.environ | {"PYTHONPATH": paths} | (variables or {}),
    )


def command(environment: Environment, body: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs the module `body`; needs SCRIPTS on PYTHONPATH."""
    # -P: a file in the working directory must not stand in for a module of the same name.
    return [str(environment.python), "-P", "-m", body, *arguments]


def _environment(work: Path, requirement: str) -> Environment:
    print(
        f"making an environment in {work}; the first time this takes minutes",
        file=sys.stderr,
        flush=True,
    )
    try:
        return make(work / "environment", [requirement])
    except EnvironmentFailed as failure:
        sys.exit(str(failure))


def absolute_out(arguments: Sequence[str], default: Path) -> tuple[Path, list[str]]:
    """The folder that --out names, seen from here, and all other arguments.

    For a body that runs in another working directory.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=default)
    options, rest = parser.parse_known_args(arguments)
    return options.out.resolve(), rest
