"""Writes the audit on a thread of its own; neither the event loop nor a call ever waits for it.

Records wait in a bounded queue. When the disk does not keep up, further ones are dropped and
counted, and a line of the file says how many they were. A file that cannot be written is tried
again every second, and `health` and the log tell of it. Lines are synced a second after they were
written.
"""

import threading
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final

import anyio
import structlog

from actors import Clock, SystemClock
from broker.app.audit.audit_files import AuditFiles, AuditLimits
from broker.app.audit.audit_lines import audit_line
from broker.core.audit.audit_record import NOBODY, AuditKind, AuditRecord, Decision
from broker.edge.rpc.audit.audit_sink import AuditFigures

QUEUE_MAX: Final = 8192
BATCH_MAX: Final = 1024
RETRY_S: Final = 1.0
SYNC_S: Final = 1.0
CLOSE_S: Final = 1.0
"""How long the end of a process waits for the last lines."""
TELL_S: Final = 300.0
"""For so long after a line was dropped `health` says so."""

log = structlog.get_logger("tidemark")


class AuditWriter:
    """An AuditSink on files. Call `put` on one thread; `close` ends it."""

    def __init__(
        self,
        files: AuditFiles,
        clock: Clock | None = None,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._files = files
        self._clock = clock or SystemClock()
        self._queue_max = queue_max
        self._queue: SimpleQueue[AuditRecord | None] = SimpleQueue()
        self._dropped = 0
        self._dropped_s = -TELL_S
        self._ending = threading.Event()
        # What follows is the thread's; others only read it.
        self._written = 0
        self._lost = 0
        self._told = 0
        self._failing = ""
        self._unsynced = False
        self._synced_s = self._clock.monotonic_s()
        # A daemon: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def put(self, record: AuditRecord) -> None:
        """See AuditSink."""
        if self._queue.qsize() >= self._queue_max or self._ending.is_set():
            self._dropped += 1
            self._dropped_s = self._clock.monotonic_s()
        else:
            self._queue.put(record)

    def figures(self) -> AuditFigures:
        """See AuditSink."""
        return AuditFigures(self._written, self._dropped + self._lost, self._failing)

    def warnings(self) -> Sequence[str]:
        """See AuditSink."""
        failing, dropped = self._failing, self._dropped
        if failing:
            waiting = f"{self._queue.qsize()} lines wait and {dropped} were dropped"
            remedy = "make room on the disk, or the folder writable"
            return [f"the audit cannot be written: {failing}; {waiting}; {remedy}"]
        if self._clock.monotonic_s() - self._dropped_s < TELL_S:
            return [f"the audit has dropped {dropped} lines: the disk did not keep up"]
        return []

    def limit(self, limits: AuditLimits) -> None:
        """Rotate by these limits from now on."""
        self._files.limits = limits

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Write what waits, and end; gives up after `within_s`."""
        self._queue.put(None)
        self._ending.set()
        await anyio.to_thread.run_sync(self._thread.join, within_s)
        if self._thread.is_alive():
            log.error(
                "the audit has lost its last lines: the disk hangs", file=str(self._files.path)
            )

    def _run(self) -> None:
        more = True
        while more:
            records, more = self._next_records()
            lines = deque([audit_line(it) for it in records])
            if lines and self._dropped > self._told:
                lines.append(audit_line(self._told_dropped()))
            self._write(lines)
            idle_s = self._clock.monotonic_s() - self._synced_s
            if self._unsynced and (not records or not more or idle_s >= SYNC_S):
                self._sync()
        self._files.close()

    def _next_records(self) -> tuple[list[AuditRecord], bool]:
        """What waits, and whether there will be more; none when it is time to sync."""
        records: list[AuditRecord] = []
        try:
            record = self._queue.get(timeout=SYNC_S if self._unsynced else None)
            while record is not None:
                records.append(record)
                if len(records) == BATCH_MAX:
                    return records, True
                record = self._queue.get_nowait()
        except Empty:
            return records, True
        return records, False

    def _write(self, lines: deque[bytes]) -> None:
        """Write the lines, until it succeeds or the process ends."""
        while lines:
            waiting = len(lines)
            try:
                self._files.append(lines)
                self._works()
            except OSError as error:
                self._fails(error)
            self._written += waiting - len(lines)
            self._unsynced = True
            if lines and self._ending.wait(RETRY_S):
                self._lost += len(lines)
                return

    def _sync(self) -> None:
        self._unsynced = False
        self._synced_s = self._clock.monotonic_s()
        try:
            self._files.sync()
        except OSError as error:
            self._fails(error)

    def _fails(self, error: OSError) -> None:
        failing = f"{self._files.path}: {error.strerror or error}"
        if failing != self._failing:
            log.error("the audit cannot be written", file=str(self._files.path), error=str(error))
        self._failing = failing

    def _works(self) -> None:
        if self._failing:
            log.warning(
                "the audit is written again", file=str(self._files.path), dropped=self._dropped
            )
        self._failing = ""

    def _told_dropped(self) -> AuditRecord:
        """The line that says how many are missing."""
        dropped, self._told = self._dropped - self._told, self._dropped
        return AuditRecord(
            self._clock.wall_ms(),
            AuditKind.ADMIN,
            "audit",
            "",
            NOBODY,
            "",
            Decision.ALLOWED,
            "DROPPED",
            named={"lines": dropped},
        )
