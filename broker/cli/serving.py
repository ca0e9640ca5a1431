"""`serve`, `coordinator`, `node`: settings from flags, environment and file, then the process.

Next: broker/app/process.py
"""

import tomllib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from broker.app import CannotStart, serve, serve_coordinator, serve_node
from broker.cli.session import USAGE, fail
from broker.config import CONFIG_FILE, Settings


def run_server(given: dict[str, Any]) -> None:
    """Serve until told to stop. Wrong settings end with code 2, everything else with 1."""
    _run(given, serve)


def run_coordinator(given: dict[str, Any]) -> None:
    """The same as a coordinator."""
    _run(given, serve_coordinator)


def run_node(given: dict[str, Any], *, leashed: bool) -> None:
    """The same as a node."""
    _run(given, lambda settings: serve_node(settings, leashed=leashed))


def _run(given: dict[str, Any], role: Callable[[Settings], None]) -> None:
    try:
        settings = Settings(**given)
    except ValidationError as error:
        fail(_refusal(error), USAGE)
    except OSError as error:
        fail(f"cannot read {CONFIG_FILE}: {error.strerror}", USAGE)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{CONFIG_FILE} is no TOML: {error}", USAGE)
    try:
        role(settings)
    except CannotStart as error:
        fail(str(error))


def _refusal(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{name!r} in {CONFIG_FILE} is no setting"
    reason, value = first["msg"].removeprefix("Value error, "), repr(first["input"])
    return f"setting {name}: {reason}" + ("" if value in reason else f", not {value}")
