"""`serve`, `coordinator`, `node`: reads the settings, then runs the process."""

import re
import tomllib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from broker.app import CannotStart, LeadLost, serve, serve_coordinator, serve_node
from broker.cli.session import USAGE, fail
from broker.config import CONFIG_FILE, Settings

DEPOSED = 3
"""The exit code of a coordinator that a newer one has replaced, which must not be restarted."""
CHOICES = re.compile(r"\^\((\w+(?:\|\w+)*)\)\$")
"""Matches a pattern that is a list of words."""


def run_server(given: dict[str, Any]) -> None:
    """Serve until a signal. Wrong settings end with exit code 2, other failures with 1.

    `given`: settings from flags; None stands for a flag that was not given.
    """
    _run(given, serve)


def run_coordinator(given: dict[str, Any]) -> None:
    """The same for a coordinator."""
    _run(given, serve_coordinator)


def run_node(given: dict[str, Any], *, leashed: bool) -> None:
    """The same for a node."""
    settings = _settings(given)
    if not settings.coordinator:
        fail("a node needs a coordinator; pass --coordinator HOST:PORT", USAGE)
    _serve(settings, lambda settings: serve_node(settings, leashed=leashed))


def _run(given: dict[str, Any], role: Callable[[Settings], None]) -> None:
    _serve(_settings(given), role)


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fail(_refusal(error), USAGE)
    except OSError as error:
        fail(f"cannot read {CONFIG_FILE}: {error.strerror}", USAGE)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{CONFIG_FILE} is not valid TOML: {error}", USAGE)


def _serve(settings: Settings, role: Callable[[Settings], None]) -> None:
    try:
        role(settings)
    except CannotStart as error:
        fail(str(error))
    except LeadLost as error:
        fail(str(error), DEPOSED)


def _refusal(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{name!r} in {CONFIG_FILE} is not a setting"
    reason, value = first["msg"], repr(first["input"])
    if first["type"] == "value_error":  # our own messages already name the value
        return f"setting {name}: {reason.removeprefix('Value error, ')}"
    choices = CHOICES.fullmatch(first.get("ctx", {}).get("pattern", ""))
    if choices:
        reason = "must be " + " or ".join(choices[1].split("|"))
    return f"setting {name}: {reason.replace('Input should', 'must')}, not {value}"
