"""Measures the resident memory of all servers after a round, and of Tidemark some time later."""

import time
from collections.abc import Mapping

from benchmark.processes import Server
from benchmark.results.figures import RESIDENT

LATER_S = 20.0


class Memory:
    """The memory of these servers."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self._measured_s = 0.0

    def now(self, name: str) -> dict[str, float]:
        """Resident memory of a server."""
        self._measured_s = time.monotonic()
        return {RESIDENT: self._servers[name].resident_bytes() / 1e6}

    def later(self, name: str) -> dict[str, float]:
        """The same at least 20 s after the last call of `now`."""
        time.sleep(max(0.0, self._measured_s + LATER_S - time.monotonic()))
        return {RESIDENT: self._servers[name].resident_bytes() / 1e6}
