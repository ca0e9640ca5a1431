"""What this process uses of its machine: processor, memory, open files, disk."""

import os
import resource
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

OPEN_FILES = (Path("/proc/self/fd"), Path("/dev/fd"))
"""Linux, and others."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """One reading; None where the system does not tell. `disk_*`: of the data folder."""

    started_s: float
    cpu_s: float
    resident_bytes: int
    open_files: int | None
    open_files_max: int | None
    disk_free_bytes: int | None
    disk_total_bytes: int | None


class ProcessFiguresReader:
    """Reads them anew at each call, in well under a millisecond."""

    def __init__(
        self,
        data_dir: Path,
        resident_bytes: Callable[[], int],
        open_files: Sequence[Path] = OPEN_FILES,
    ) -> None:
        self._data_dir = data_dir
        self._resident_bytes = resident_bytes
        self._open_files = open_files
        self._started_s = psutil.Process().create_time()

    def read(self) -> ProcessFigures:
        """The figures now. Never fails: a disk that is away has no figures."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        free, total = self._disk()
        return ProcessFigures(
            started_s=self._started_s,
            cpu_s=used.ru_utime + used.ru_stime,
            resident_bytes=self._resident_bytes(),
            open_files=self._count_open_files(),
            open_files_max=_open_files_max(),
            disk_free_bytes=free,
            disk_total_bytes=total,
        )

    def _count_open_files(self) -> int | None:
        for folder in self._open_files:
            try:
                return len(os.listdir(folder)) - 1  # noqa: PTH208 - no Path for each; one is our own
            except OSError:
                continue
        return None

    def _disk(self) -> tuple[int | None, int | None]:
        try:
            usage = shutil.disk_usage(self._data_dir)
        except OSError:
            return None, None
        return usage.free, usage.total


def _open_files_max() -> int | None:
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return None  # a sandbox may refuse the call
    return None if limit == resource.RLIM_INFINITY else limit
