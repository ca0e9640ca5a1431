"""How much memory this process uses and may use, read from the kernel."""

import os
import resource
import sys
from pathlib import Path

KIB = 1024


class ProcessMemory:
    """Implements `broker.ports.memory.Memory`. The total is read once."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: the folder with the kernel's `proc` and `sys`."""
        self._resident = root / "proc/self/statm"
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._total = min([os.sysconf("SC_PHYS_PAGES") * self._page_bytes, *_cgroup_limits(root)])

    def total_bytes(self) -> int:
        """The memory of the machine, or the smallest limit of its container."""
        return self._total

    def process_bytes(self) -> int:
        """Resident memory; its peak on systems without /proc."""
        try:
            return int(self._resident.read_text().split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * KIB


def _cgroup_limits(root: Path) -> list[int]:
    """The limits of the control group, of either version."""
    limits: list[int] = []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (root / "sys/fs/cgroup" / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return limits
