"""Generates scripts/constraints.txt: one pinned version of every dependency, for all platforms.

    python3 scripts/lock.py             after a change in pyproject.toml; keeps pins that fit
    python3 scripts/lock.py --upgrade   moves every pin to its newest release
    python3 scripts/lock.py --check     fails when the file is not what the first form would write

The file has no index, host or path: it does not say where packages come from.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import CONSTRAINTS, ROOT, installer_variables, pip_settings

HEADER = "# Made by scripts/lock.py from pyproject.toml; never edited by hand.\n"


def main() -> int:
    """Write or check the file; 0 when it is up to date."""
    parser = argparse.ArgumentParser(description="Pin everything that pyproject.toml may install.")
    parser.add_argument("--upgrade", action="store_true", help="move to the newest releases")
    parser.add_argument("--check", action="store_true", help="only check whether it is up to date")
    options = parser.parse_args()
    pinned = HEADER + _resolve(upgrade=options.upgrade)
    if not options.check:
        CONSTRAINTS.write_text(pinned)
        return 0
    if CONSTRAINTS.read_text() == pinned:
        return 0
    print(
        "scripts/constraints.txt is older than pyproject.toml: run scripts/lock.py", file=sys.stderr
    )
    return 1


def _resolve(*, upgrade: bool) -> str:
    """The result of uv's resolver, which keeps present pins unless told to upgrade."""
    variables = installer_variables(pip_settings(Path(sys.executable)))
    for name in ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"):  # the old pins are wishes here, not law
        variables.pop(name)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "constraints.txt")
        if CONSTRAINTS.exists() and not upgrade:
            shutil.copy(CONSTRAINTS, output)
        command = [*_uv(), "pip", "compile", "--quiet", "pyproject.toml", "--all-extras"]
        command += ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--output-file", str(output)]
        subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.DEVNULL)
        return output.read_text()


def _uv() -> list[str]:
    """The uv of this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        sys.exit("uv is needed to lock: pip install uv")
    return [found]


if __name__ == "__main__":
    sys.exit(main())
