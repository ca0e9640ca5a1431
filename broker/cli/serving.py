"""`serve`, `coordinator`, `node`: reads the settings, then runs the process."""

from collections.abc import Callable
from typing import Any

from broker.app import CannotStart, LeadLost, serve, serve_coordinator, serve_node
from broker.cli.session import USAGE, fail
from broker.config import Settings, load_settings
from broker.config_file import BadConfig

DEPOSED = 3
"""The exit code of a coordinator that a newer one has replaced, which must not be restarted."""


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
        return load_settings(given)
    except BadConfig as error:
        fail(str(error), USAGE)


def _serve(settings: Settings, role: Callable[[Settings], None]) -> None:
    try:
        role(settings)
    except CannotStart as error:
        fail(str(error))
    except LeadLost as error:
        fail(str(error), DEPOSED)
