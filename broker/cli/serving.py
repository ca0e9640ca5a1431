"""`tidemark serve`: settings from flags, environment and file, then the broker itself.

Next: broker/app.py
"""

from typing import Any

from pydantic import ValidationError

from broker.app import CannotStart, serve
from broker.cli.session import USAGE, fail
from broker.config import Settings


def run_server(given: dict[str, Any]) -> None:
    """Serve until told to stop. Wrong settings end with code 2, everything else with 1."""
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        fail(f"setting {name}: {first['msg']}, not {first.get('input')!r}", USAGE)
    try:
        serve(settings)
    except CannotStart as error:
        fail(str(error))
