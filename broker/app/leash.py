"""The pipe from the process that started this node: it ends with it, and brings its settings.

Each line is a JSON object of settings that changed while the parent runs.
"""

import json
import os
from collections.abc import Callable, Mapping

import structlog

STDIN = 0
READ_BYTES = 4096
LINE_BYTES_MAX = 64 * 1024

log = structlog.get_logger("tidemark")


class Leash:
    """Reads stdin, which must have something to read. Calls `ended` once, when it is closed."""

    def __init__(
        self, ended: Callable[[], None], changed: Callable[[Mapping[str, str]], None]
    ) -> None:
        self._ended = ended
        self._changed = changed
        self._rest = b""

    def read(self) -> None:
        """Take what has arrived."""
        data = os.read(STDIN, READ_BYTES)
        if not data:
            self._ended()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:LINE_BYTES_MAX]
        for line in lines:
            try:
                values = json.loads(line)
            except ValueError:
                values = None
            if isinstance(values, dict):
                self._changed({str(name): str(it) for name, it in values.items()})
            else:
                log.warning("ignoring a line on stdin that is no JSON object")
