"""The secret by which the processes of a cluster know each other: a file in their data folder.

Where each host has a folder of its own, an operator copies the file. Why it is not in the metadata
store: who may read that, or its backups, could then call as a process of the cluster. The store has
a hash of it, so that a wrong one is told at the start.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from broker.app.process_errors import CannotStart
from broker.folder_lock import sync_folder
from broker.ports.meta import Conflict, MetaStore

FILE: Final = "cluster.secret"
SECRET_KEY: Final = "cluster-secret/sha256"
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


async def shared_secret(folder: Path, store: MetaStore) -> str:
    """The secret of a folder that may be one of several of the cluster.

    Raises CannotStart, and MetaError: it may be called again.
    """
    path = folder / FILE
    entry = await store.get(SECRET_KEY)
    if entry is not None and not path.exists():
        raise CannotStart(
            f"{path} is missing: copy it from the data folder of another process of this"
            " cluster, with mode 600"
        )
    secret = cluster_secret(folder)
    digest = hashlib.sha256(secret.encode()).hexdigest().encode()
    if entry is None:
        try:
            await store.write({SECRET_KEY: digest}, expect={SECRET_KEY: 0})
        except Conflict:
            entry = await store.get(SECRET_KEY)
    if entry is not None and not secrets.compare_digest(entry.value, digest):
        raise CannotStart(
            f"{path} is not the secret of this cluster: copy it from the data folder of another"
            " process; or, for a new secret, stop all processes, and delete the key that ends in"
            f" {SECRET_KEY} in the metadata"
        )
    return secret


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
