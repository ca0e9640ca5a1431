"""How much memory this process uses and may use, read from the kernel."""

import ctypes
import os
import resource
import sys
from pathlib import Path

from anyio import to_thread

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

    def used_bytes(self) -> int:
        """Blocks in use of glibc's allocator; 0 with another one."""
        if _LIBC is None:
            return 0
        info = _LIBC.mallinfo2()
        return int(info.uordblks + info.hblkhd)

    async def trim(self) -> None:
        """Return free pages to the kernel, also those between blocks in use."""
        if _LIBC is not None:
            await to_thread.run_sync(_LIBC.malloc_trim, 0)


class _Mallinfo2(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is a glibc of 2.33 or later."""
    libc = ctypes.CDLL(None)
    try:
        libc.mallinfo2.restype = _Mallinfo2
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except AttributeError:
        return None
    return libc


_LIBC = _glibc()


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
