"""The settings of a process that change live: which there are, their rules, who applies them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.model.master.live_config import SettingView, StoredSettings


class LiveSettings(Protocol):
    """The settings in force in this process. No call blocks."""

    @property
    def revision(self) -> int:
        """Of the stored settings in force; 0 for none."""
        ...

    def problem(self, name: str, value: str) -> str:
        """Why the setting cannot be stored with this value; "" when it can.

        The rules are those of a start: the name is known, the value fits its type and bounds. A
        setting that needs a restart raises NeedsRestart.
        """
        ...

    def known(self, name: str) -> bool:
        """Whether a setting has this name, live or not."""
        ...

    def adopt(self, stored: StoredSettings) -> None:
        """Apply stored settings, which replace all earlier ones; no-op at the same revision.

        A value that this release refuses is left out and logged; see `views`.
        """
        ...

    def views(self, stored: StoredSettings, revisions: Mapping[str, int]) -> Sequence[SettingView]:
        """Every live setting, by name; `revisions`: of the stored ones."""
        ...


class NeedsRestart(Exception):
    """The setting does not change while the process runs; the text says what to do."""
