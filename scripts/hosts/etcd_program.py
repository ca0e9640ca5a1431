"""Finds etcd: on PATH, else where `.ci/run` unpacks Debian's package `etcd-server`."""

import shutil
import subprocess
from pathlib import Path

UNPACKED = Path(__file__).resolve().parents[2] / ".check" / "etcd" / "usr" / "bin" / "etcd"


def find_etcd() -> str | None:
    """The program, or None."""
    return shutil.which("etcd") or (str(UNPACKED) if UNPACKED.exists() else None)


class NoEtcd(Exception):
    """There is no etcd, and it cannot be fetched; the text names the command."""


def fetched_etcd(folder: Path) -> str:
    """The program; Debian's package is unpacked in the folder where there is none. NoEtcd."""
    unpacked = folder / "usr" / "bin" / "etcd"
    found = find_etcd() or (str(unpacked) if unpacked.exists() else None)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    # Unpacked alone: its installation would start a server.
    fetch = "apt-get update -qq; apt-get download -qq etcd-server && dpkg-deb -x etcd-*.deb ."
    done = subprocess.run(
        ["sh", "-c", fetch], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode or not unpacked.exists():
        raise NoEtcd(
            f"there is no etcd on PATH, and it cannot be fetched ({done.stderr.strip()[-200:]});"
            " install it, such as with: sudo apt-get install etcd-server"
        )
    return str(unpacked)
