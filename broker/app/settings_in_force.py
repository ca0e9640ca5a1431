"""The settings in force in a process: those of its start, changed by those stored in the cluster.

A stored setting wins, whatever flag or variable the process was started with: a process that kept
its own value would differ from all others. SIGHUP changes the settings below the stored ones.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from broker.config import changed_settings
from broker.config_file import BadConfig, nearest
from broker.model.master.live_config import SettingView, StoredSettings
from broker.ports.master.live_settings import NeedsRestart
from broker.process_settings import Settings

LIVE_SETTINGS = frozenset(
    {
        "allow_rebalance",
        "audit_bytes_max",
        "audit_data",
        "audit_files_max",
        "balance_interval_s",
        "balance_policy",
        "compaction_dirty_percent",
        "compaction_min_bytes",
        "connections_max",
        "disk_refuse_percent",
        "disk_slow_percent",
        "disk_warn_percent",
        "hold_bytes_max",
        "hold_s_max",
        "limits",
        "log_level",
        "memory_bytes_max",
        "memory_refuse_percent",
        "memory_slow_percent",
        "memory_warn_percent",
        "min_rebalance_interval_s",
        "open_txn_bytes_max",
        "open_txns_max",
        "rebalance_lag_ms_max",
        "retention_bytes",
        "retention_check_s",
        "retention_ms",
        "snapshot_period_s",
        "snapshot_records",
        "stage_age_ms_max",
        "stage_idle_ms",
        "tick_interval_ms",
        "txn_age_ms_max",
        "txn_bytes_max",
        "txn_keepalive_ms",
        "txn_keepalive_ms_max",
    }
)
"""Those that `tidemark config set` changes in a running cluster.

Not among them: what is fixed for a data folder, what a process is laid out by at its start (ports,
folders, memory of the newest records, sizes of files and frames), and what decides how a log is
read back.
"""

log = structlog.get_logger("tidemark")

Apply = Callable[[Settings], None]


class SettingsInForce:
    """A `LiveSettings` port. `now` is what holds; each listener is called after a change."""

    def __init__(self, started_with: Settings, stored: StoredSettings | None = None) -> None:
        self._base = started_with
        self._stored = StoredSettings()
        self._problems: dict[str, str] = {}
        self._listeners: list[Apply] = []
        self.now = started_with
        if stored is not None:
            self.adopt(stored)

    @property
    def revision(self) -> int:
        """See LiveSettings."""
        return self._stored.revision

    @property
    def started_with(self) -> Settings:
        """Those of this process alone: from flags, variables, file and defaults."""
        return self._base

    def listen(self, apply: Apply) -> None:
        """Call `apply` with the settings now, and after every change."""
        self._listeners.append(apply)
        apply(self.now)

    def rebase(self, started_with: Settings) -> None:
        """Settings of the process that were read again; stored ones still win."""
        self._base = started_with
        self._update()

    def adopt(self, stored: StoredSettings) -> None:
        """See LiveSettings."""
        if stored.revision == self._stored.revision:
            return
        self._stored = stored
        self._update()

    def known(self, name: str) -> bool:
        """See LiveSettings."""
        return name in Settings.model_fields

    def problem(self, name: str, value: str) -> str:
        """See LiveSettings."""
        if name not in Settings.model_fields:
            return (
                f"{name!r} is not a setting{nearest(name, sorted(LIVE_SETTINGS))}; keys of"
                " applications have several parts, such as app/colour"
            )
        if name not in LIVE_SETTINGS:
            raise NeedsRestart(
                f"setting {name} does not change while the cluster runs: set"
                f" TIDEMARK_{name.upper()}, or {name} in the configuration file, and restart"
            )
        try:
            changed_settings(self._base, {name: value})
        except BadConfig as error:
            return str(error)
        return ""

    def views(self, stored: StoredSettings, revisions: Mapping[str, int]) -> Sequence[SettingView]:
        """See LiveSettings."""
        return [
            SettingView(
                name=name,
                started_with=_text(self._base, name),
                stored=stored.values.get(name),
                in_force=_text(self.now, name),
                revision=revisions.get(name, 0),
                problem=self._problems.get(name, ""),
            )
            for name in sorted(LIVE_SETTINGS)
        ]

    def _update(self) -> None:
        """Compute what is in force, and apply it."""
        before, accepted = self._problems, {}
        self._problems = {}
        for name, value in sorted(self._stored.values.items()):
            try:
                wrong = self.problem(name, value)
            except NeedsRestart as error:
                wrong = str(error)
            if not wrong:
                accepted[name] = value
                continue
            self._problems[name] = wrong
            # Stored by another release: this process runs on with the value of its start.
            if before.get(name) != wrong:
                log.error("a stored setting is not applied", name=name, error=wrong)
        was, self.now = self.now, changed_settings(self._base, accepted)
        if self.now == was:
            return
        for apply in self._listeners:
            apply(self.now)


def _text(settings: Settings, name: str) -> str:
    """The value in the form in which it can be set."""
    value = getattr(settings, name)
    return str(value).lower() if isinstance(value, bool) else str(value)
