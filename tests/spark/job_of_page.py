"""The user of a job, as the page on Spark makes it: the commands, and the grants in them."""

import re
import shlex
from typing import Final

from tests.architecture.tree import ROOT

PAGE: Final = ROOT / "broker" / "spark" / "README.md"
_SECTION: Final = re.search(r"## Users and tokens\n.*?```\n(.*?)```", PAGE.read_text(), re.DOTALL)
assert _SECTION is not None, f"{PAGE} has commands for users"
COMMANDS: Final[list[str]] = _SECTION[1].splitlines()
JOB: Final = "nightly-job"
GRANTS: Final[list[str]] = [it for it in shlex.split(COMMANDS[0]) if it.count(":") == 2]
