"""The manifest of a backup: what it holds, with sizes and checksums. Written last.

A folder without a manifest is not a backup, whatever else lies in it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from broker.backup.backup_failed import BackupFailed
from broker.backup.durable_files import write_durably
from broker.unreadable import UNREADABLE

MANIFEST: Final = "manifest.json"
METADATA: Final = "metadata.sqlite"
LOG: Final = "log"
"""Named otherwise than in a data folder, so that no broker starts on a backup."""
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of the backup; `path` is relative, '/'-joined."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupLog:
    """One pchannel's log as it was cut: ids in [first_id, next_id)."""

    first_id: int
    next_id: int
    last_tick: int
    last_term: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup at `tick`. `taken_ms`: when, in Unix milliseconds."""

    cluster: str
    cluster_id: str
    tick: int
    taken_ms: int
    program: str
    logs: Mapping[str, BackupLog]
    files: tuple[BackupFile, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def messages(self) -> int:
        """Ids in all logs; time ticks and ends of transactions have ids, too."""
        return sum(log.next_id - log.first_id for log in self.logs.values())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make the folder a backup, durably. All its files must be durable before. OSError."""
    fields = {"format": FORMAT, **asdict(manifest)}
    text = json.dumps({**fields, "checksum": _checksum(fields)}, indent=1) + "\n"
    write_durably(folder / MANIFEST, text.encode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup. Raises BackupFailed when there is none, or it is damaged."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BackupFailed(f"there is no folder {folder}")
    try:
        fields = json.loads(path.read_bytes())
        found = fields["format"]
        if found != FORMAT:
            raise BackupFailed(
                f"{path} has format {found}; this release reads format {FORMAT}:"
                " use the release that took the backup"
            )
        if fields.pop("checksum") != _checksum(fields):
            raise BackupFailed(f"{path} is damaged: its checksum does not match; use another copy")
        return _manifest(fields)
    except FileNotFoundError:
        raise BackupFailed(
            f"{folder} has no {MANIFEST}: it is no backup, or one that did not finish; delete it"
        ) from None
    except OSError as error:
        raise BackupFailed(f"cannot read {path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise BackupFailed(f"{path} is damaged: {error!r}; use another copy") from error


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    return Manifest(
        cluster=str(fields["cluster"]),
        cluster_id=str(fields["cluster_id"]),
        tick=int(fields["tick"]),
        taken_ms=int(fields["taken_ms"]),
        program=str(fields["program"]),
        logs={name: BackupLog(**log) for name, log in fields["logs"].items()},
        files=tuple(BackupFile(**file) for file in fields["files"]),
    )


def _checksum(fields: Mapping[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()
