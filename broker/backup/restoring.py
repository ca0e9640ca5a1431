"""Makes a data folder from a backup: whole, or not at all."""

import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from broker.backup.backup_failed import BackupFailed
from broker.backup.checking import check
from broker.backup.cut_logs import recovered_end
from broker.backup.durable_files import Progress, copy_front, make_durably, sync
from broker.backup.manifest import LOG, METADATA, Manifest, read_manifest
from broker.backup.restored_heads import end_with_original
from broker.backup.restored_metadata import RestorePoint, changes_for
from broker.data_folder import DataFolder, DataFolderError, clear_unfinished, restored_folder
from broker.meta.sqlite_snapshot import change_offline, entries_of
from broker.model.ids import Term, TimeTick
from broker.ports.meta import MetaError


class Restore:
    """One restore. Use once: `plan`, then `run`. Raises BackupFailed."""

    def __init__(self, backup: Path, target: Path) -> None:
        self._backup = backup
        self._folder = DataFolder(target)

    def plan(self) -> Manifest:
        """The manifest; nothing is touched. Refuses a target that is in use, or has no room."""
        manifest = read_manifest(self._backup)
        target = self._folder.root
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise BackupFailed(f"{target} is not an empty folder; name a new one")
        free = shutil.disk_usage(_existing(target)).free
        if free < manifest.total_bytes:
            raise BackupFailed(
                f"the backup has {manifest.total_bytes} bytes, and the file system of {target} has"
                f" {free} bytes free; free some space or name another folder"
            )
        return manifest

    def run(self, manifest: Manifest, now_ms: int, progress: Progress) -> None:
        """Verify everything, then copy; a broker can start on the folder when this returns.

        `progress` counts each byte twice. After an error, or Ctrl-C, nothing is left; after a kill
        the folder says that it is unfinished, and no broker starts on it.
        """
        check(self._backup, manifest, progress)
        made: list[Path] = []
        try:
            made += make_durably(self._folder.root)
            with restored_folder(self._folder.root):
                self._copy(manifest, progress)
                self._change_metadata(manifest, now_ms)
        except BaseException as error:
            self._remove(made)
            if isinstance(error, OSError):
                where = f"{error.filename or self._folder.root}: {error.strerror}"
                raise BackupFailed(f"cannot write the restored folder: {where}") from error
            if isinstance(error, MetaError | DataFolderError):
                raise BackupFailed(str(error)) from error
            raise

    def _copy(self, manifest: Manifest, progress: Progress) -> None:
        for file in manifest.files:
            source, target = self._backup / file.path, self._placed(file.path)
            make_durably(target.parent)
            if copy_front(source, target, file.bytes, progress) != file.sha256:
                raise BackupFailed(f"{source} changed while it was restored; use another backup")
        for folder in {self._placed(file.path).parent for file in manifest.files}:
            sync(folder)

    def _placed(self, path: str) -> Path:
        """Where a file of the backup lies in a data folder."""
        if path == METADATA:
            return self._folder.metadata
        folder, _, rest = path.partition("/")
        if folder != LOG or ".." in Path(rest).parts:
            raise BackupFailed(f"the manifest names {path!r}, which is no file of a backup")
        return self._folder.log / rest

    def _change_metadata(self, manifest: Manifest, now_ms: int) -> None:
        terms = self._checked_ends(manifest)
        point = RestorePoint(TimeTick(manifest.tick), now_ms, terms, secrets.token_hex(8))
        changes = changes_for(entries_of(self._folder.metadata), point)
        change_offline(self._folder.metadata, changes.puts, changes.deletes)

    def _checked_ends(self, manifest: Manifest) -> Mapping[str, Term]:
        """The newest term of each log, after opening it as a broker will."""
        terms: dict[str, Term] = {}
        for name, log in manifest.logs.items():
            end = recovered_end(self._folder.log, name)
            if (end.next_id, end.last_tick) != (log.next_id, log.last_tick) and log.last_tick:
                raise BackupFailed(
                    f"the restored log of {name} ends at id {end.next_id}, the backup says"
                    f" {log.next_id}; use another backup"
                )
            terms[name] = max(end.last_term, Term(log.last_term))
            end_with_original(self._folder.log, name)
        return terms

    def _remove(self, made: Sequence[Path]) -> None:
        shutil.rmtree(self._folder.log, ignore_errors=True)
        for path in self._folder.root.glob(f"{self._folder.metadata.name}*"):
            with suppress(OSError):
                path.unlink()
        clear_unfinished(self._folder.root)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)
