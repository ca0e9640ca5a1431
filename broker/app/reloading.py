"""Reads the settings again while the process runs, and applies those that can change.

The others are named in the log: they need a restart. Wrong settings change nothing.
"""

from collections.abc import Callable, Mapping

import structlog

from broker.app.logs import configure_logs
from broker.app.running_process import Broker
from broker.app.settings_in_force import LIVE_SETTINGS
from broker.config_file import BadConfig
from broker.process_settings import Settings

LIVE = LIVE_SETTINGS | {"log_format"}
"""The settings that change without a restart of the process."""

Load = Callable[[Mapping[str, str]], Settings]
"""Reads all settings; the given ones go before flags. Raises BadConfig."""

log = structlog.get_logger("tidemark")


class Reloads:
    """The settings in force, and where they are read again; None: from nowhere."""

    def __init__(self, settings: Settings, load: Load | None, node: int | None) -> None:
        self._now = settings
        self._load = load
        self.node = node
        self._from_parent: dict[str, str] = {}
        self._broker: Broker | None = None
        self._logs = (settings.log_level, settings.log_format)

    def started(self, broker: Broker) -> None:
        """Pass on what changed during the start, and later changes when they come."""
        self._broker = broker
        broker.settings.rebase(self._now)
        broker.settings.listen(self._configure_logs)

    def from_parent(self, values: Mapping[str, str]) -> None:
        """Reload; these values of the parent process go before all others from now on."""
        self._from_parent.update({name: it for name, it in values.items() if name in LIVE})
        self.reload()

    def reload(self) -> None:
        """Read the settings and apply what changed; logs that, and what needs a restart."""
        if self._load is None:
            log.warning("settings cannot be reloaded: the process was not started by the command")
            return
        try:
            found = self._load(self._from_parent)
        except BadConfig as error:
            log.error("settings not reloaded, the old ones stay in force", error=str(error))
            return
        changed = {name: it for name, it in found if it != getattr(self._now, name)}
        live = {name: it for name, it in changed.items() if name in LIVE}
        if live:
            # Only these: a setting that waits for its restart is reported again the next time.
            self._now = self._now.model_copy(update=live)
            if self._broker is None:
                self._configure_logs(self._now)
            else:
                self._broker.settings.rebase(self._now)
        waiting = sorted(set(changed) - set(live))
        log.warning(
            "settings reloaded",
            changed=", ".join(f"{name}={it}" for name, it in sorted(live.items())) or "nothing",
            **({"need_a_restart": ", ".join(waiting)} if waiting else {}),
        )

    def _configure_logs(self, settings: Settings) -> None:
        wanted = (settings.log_level, settings.log_format)
        if wanted != self._logs:
            self._logs = wanted
            configure_logs(*wanted, node=self.node)
