"""`serve`, `coordinator`, `node`: reads the settings, then runs the process."""

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.app import CannotGoOn, CannotStart, LeadLost, serve, serve_coordinator, serve_node
from broker.app.reloading import Load
from broker.cli.session import USAGE, fail
from broker.config import load_settings
from broker.config_file import BadConfig
from broker.process_settings import Settings

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
    if not (settings.coordinator or settings.meta):
        fail(
            "a node needs a coordinator; pass --coordinator HOST:PORT, or --meta etcd://HOST/PREFIX"
            " where coordinators are announced",
            USAGE,
        )
    _run(given, partial(serve_node, leashed=leashed))


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return load_settings(given)
    except BadConfig as error:
        fail(str(error), USAGE)


def _run(given: dict[str, Any], role: Callable[[Settings, Load], None]) -> None:
    try:
        role(_settings(given), lambda more: load_settings({**given, **more}))
    except (CannotStart, CannotGoOn) as error:
        fail(str(error))
    except LeadLost as error:
        fail(str(error), DEPOSED)
