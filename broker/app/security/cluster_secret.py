"""The secret by which the processes of a cluster know each other: a file in their data folder."""

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from broker.app.process_errors import CannotStart
from broker.folder_lock import sync_folder

FILE: Final = "cluster.secret"
MODE: Final = 0o600
BYTES: Final = 32
LENGTH_MAX: Final = 1024


def cluster_secret(folder: Path) -> str:
    """The secret of the folder, made when it is missing. Raises CannotStart."""
    path = folder / FILE
    try:
        if not path.exists():
            _make(folder, path)
        state = path.stat()
        if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CannotStart(
                f"others than its owner may use {path}, which lets them call as a process of this"
                " cluster; chmod 600 it"
            )
        found = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"cannot read {path}: {error}") from error
    if not BYTES <= len(found) <= LENGTH_MAX or not found.isprintable():
        raise CannotStart(f"{path} holds no secret; delete it, and a new one is made")
    return found


def _make(folder: Path, path: Path) -> None:
    """Several processes may start at once: the first link wins, and all read that one."""
    draft = folder / f".{FILE}.{secrets.token_hex(8)}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
    try:
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_hex(BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first
    finally:
        draft.unlink()
    sync_folder(folder)
