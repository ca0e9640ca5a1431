"""Finds etcd: on PATH, else where `.ci/run` unpacks Debian's package `etcd-server`."""

import shutil
from pathlib import Path

UNPACKED = Path(__file__).resolve().parents[2] / ".check" / "etcd" / "usr" / "bin" / "etcd"


def find_etcd() -> str | None:
    """The program, or None."""
    return shutil.which("etcd") or (str(UNPACKED) if UNPACKED.exists() else None)
