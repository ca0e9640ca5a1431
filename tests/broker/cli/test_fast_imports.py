"""What a server process does without when it starts, and what it still can."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
STARTED = """
import gc, sys
from broker.cli.fast_imports import fast_imports
with fast_imports():
    assert not gc.isenabled()
    from broker.cli.serving import run_server
assert gc.isenabled() and gc.get_freeze_count() > 0
assert "rich" not in sys.modules, "a fifth of the start"
assert sys.modules["structlog"].dev.rich is None
import rich
with fast_imports():
    assert sys.modules["rich"] is rich, "what is there already stays"
print("started")
"""


def test_a_server_loads_no_rich_and_whoever_wants_it_later_gets_it() -> None:
    command = [sys.executable, "-c", STARTED]
    ended = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "started\n"), ended.stderr
