"""The audit of a running process: begins before its port opens, ends after it has closed."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from broker.app.audit.audit_files import AuditFiles, AuditLimits
from broker.app.audit.audit_writer import AuditWriter
from broker.app.logs import program_version
from broker.app.settings_in_force import LIVE_SETTINGS
from broker.data_folder import DataFolder
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.process_settings import Settings


class ProcessAudit:
    """The trail of a process, and its settings."""

    def __init__(self, trail: AuditTrail, writer: AuditWriter, settings: Settings) -> None:
        self.trail = trail
        self._writer = writer
        self._settings: Settings | None = None
        self._apply(settings)

    def adopt(self, settings: Settings) -> None:
        """Record which settings have changed, without their values, and follow those of ours."""
        # The first ones are those of the start.
        before, self._settings = self._settings or settings, settings
        changed = [
            name for name, it in settings if name in LIVE_SETTINGS and it != getattr(before, name)
        ]
        self._apply(settings)
        if changed:
            self.trail.note("settings", {"settings": changed})

    def _apply(self, settings: Settings) -> None:
        self.trail.data = settings.audit_data
        self._writer.limit(audit_limits(settings))


def audit_limits(settings: Settings) -> AuditLimits:
    """How large the files may grow."""
    return AuditLimits(settings.audit_bytes_max, settings.audit_files_max)


@asynccontextmanager
async def process_audit(settings: Settings, name: str) -> AsyncIterator[ProcessAudit]:
    """The audit of the process that has this name in its data folder, while the block runs."""
    path = DataFolder(settings.data_dir).audit / f"{name}.jsonl"
    writer = AuditWriter(AuditFiles(path, audit_limits(settings)))
    trail = AuditTrail(writer)
    trail.note("start", {"pid": os.getpid(), "version": program_version()})
    try:
        yield ProcessAudit(trail, writer, settings)
    finally:
        trail.close()
        trail.note("stop", {"pid": os.getpid()})
        with anyio.CancelScope(shield=True):
            await writer.close()
