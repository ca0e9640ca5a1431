"""Checks that a backup is whole: every file of the manifest, byte by byte."""

from pathlib import Path

from broker.backup.backup_failed import BackupFailed
from broker.backup.durable_files import Progress, digest_of
from broker.backup.manifest import BackupFile, Manifest

NAMED_MAX = 5
"""Bad files that are named; a disk that fails may have damaged thousands."""


def check(folder: Path, manifest: Manifest, progress: Progress) -> None:
    """Read all files. BackupFailed names those that are missing or changed, and what is wrong."""
    wrong = [trouble for file in manifest.files if (trouble := _trouble(folder, file, progress))]
    if wrong:
        more = f" and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
        named = "; ".join(wrong[:NAMED_MAX])
        raise BackupFailed(f"{folder} is damaged: {named}{more}; use another backup")


def _trouble(folder: Path, file: BackupFile, progress: Progress) -> str:
    path = folder / file.path
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"{file.path} has {size} bytes instead of {file.bytes}"
        if digest_of(path, progress) != file.sha256:
            return f"{file.path} does not match its checksum"
    except FileNotFoundError:
        return f"{file.path} is missing"
    except OSError as error:
        return f"{file.path} cannot be read: {error.strerror}"
    return ""
