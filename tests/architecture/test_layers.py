"""Who may import whom, as written under [tool.importlinter] in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The checkout is judged, also where the installed wheel is what the other tests run.
LINT = """
import sys
sys.path.insert(0, "")
from importlinter.cli import lint_imports_command
lint_imports_command()
"""


def test_no_package_imports_what_it_must_not_know() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-c", LINT, "--no-cache"]
    told = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
