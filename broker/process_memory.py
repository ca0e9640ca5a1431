"""How much memory this process takes, and may take, as the kernel says."""

import os
import resource
import sys
from pathlib import Path

KIB = 1024


class ProcessMemory:
    """See `broker.ports.memory.Memory`. The total is read once."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where the kernel's own files lie below."""
        self._resident = root / "proc/self/statm"
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._total = min([os.sysconf("SC_PHYS_PAGES") * self._page_bytes, *_confinements(root)])

    def total_bytes(self) -> int:
        """The machine's memory, or the smallest limit that a container sets."""
        return self._total

    def process_bytes(self) -> int:
        """Resident now; where the kernel does not tell, the most that it ever was."""
        try:
            return int(self._resident.read_text().split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * KIB


def _confinements(root: Path) -> list[int]:
    """Limits of the control group, of either version; none where there is no limit."""
    limits: list[int] = []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (root / "sys/fs/cgroup" / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return limits
