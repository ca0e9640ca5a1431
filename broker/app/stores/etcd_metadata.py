"""Opens the metadata of a data folder in etcd, and keeps the two from being mixed up with others.

The folder has the log, so folder and store belong together. Both have the same token: the folder in
`metadata.json`, with the prefix and the highest revision seen there.
"""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from broker.app.process_errors import CannotStart
from broker.data_folder import DataFolder
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.folder_lock import create_durably, replace_durably
from broker.ports.meta import MetaError
from broker.process_settings import Settings
from broker.transport.tls import BadTls, ClientTls, Tls


@dataclass(frozen=True, slots=True)
class MetadataNote:
    """What `metadata.json` says. `revision`: the highest one that a process has seen.

    `copying`: the metadata is still in `meta.sqlite`; see `metadata_copy.py`.
    """

    prefix: str
    owner: str
    revision: int
    copying: bool = False
    store: str = "etcd"

    @property
    def new(self) -> bool:
        """Whether no process has opened the store yet."""
        return self.revision == 0


@asynccontextmanager
async def etcd_metadata(
    settings: Settings, folder: DataFolder, *, notes: bool
) -> AsyncIterator[EtcdMetaStore]:
    """The metadata store that `settings.meta` names, open until the block ends. Raises CannotStart.

    `notes`: this process has the folder for itself, and keeps the highest revision in it.
    """
    place = etcd_place(settings.meta)
    if folder.metadata.exists():
        raise CannotStart(
            f"the metadata of {folder.root} is in {folder.metadata.name}, and meta names {place}:"
            f" move it there with `tidemark meta copy --data-dir {folder.root} --meta {place}`,"
            " start without meta, or pass another --data-dir"
        )
    note = made_note(folder.metadata_note, place.prefix)
    if note.prefix != place.prefix:
        raise CannotStart(
            f"the metadata of {folder.root} is below the prefix {note.prefix} in etcd, and meta"
            f" names {place}: correct the prefix, or pass another --data-dir"
        )
    async with open_etcd(settings, note) as store:
        try:
            if notes:
                _note_revision(folder.metadata_note, note, store.revision)
            yield store
        finally:  # a stop is a cancellation
            if notes:
                _note_revision(folder.metadata_note, note, store.revision)


@asynccontextmanager
async def open_etcd(settings: Settings, note: MetadataNote) -> AsyncIterator[EtcdMetaStore]:
    """The store of this note, open until the block ends. Raises CannotStart."""
    try:
        store = await EtcdMetaStore.open(
            etcd_place(settings.meta),
            owner=note.owner,
            tls=_tls(settings),
            password=partial(_password, settings.meta_password_file),
            revision=note.revision,
        )
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with store:
        yield store


def refuse_other_place(folder: DataFolder) -> None:
    """Raises CannotStart for a folder whose metadata is in etcd, when no `meta` is given."""
    if not folder.metadata_note.exists():
        return
    note = read_note(folder.metadata_note)
    if folder.metadata.exists():
        raise CannotStart(
            f"a copy of the metadata of {folder.root} to or from etcd has not finished: repeat"
            f" `tidemark meta copy`; or, to stay with {folder.metadata.name}, delete"
            f" {folder.metadata_note}"
        )
    raise CannotStart(
        f"the metadata of {folder.root} is in etcd, below the prefix {note.prefix}: pass --meta"
        f" etcd://HOST:PORT/{note.prefix}"
    )


def made_note(path: Path, prefix: str, *, copying: bool = False) -> MetadataNote:
    """The note of a folder, made if there is none. Raises CannotStart."""
    try:
        if not path.exists():
            new = MetadataNote(prefix, secrets.token_hex(16), revision=0, copying=copying)
            # A node may find a new folder at the same time: one of the two tokens is taken.
            create_durably(path, _text(new))
    except OSError as error:
        raise CannotStart(f"cannot write {path}: {error.strerror}") from error
    return read_note(path)


def read_note(path: Path) -> MetadataNote:
    """The note of a folder. Raises CannotStart."""
    try:
        fields: Any = json.loads(path.read_text())
        return MetadataNote(
            str(fields["prefix"]),
            str(fields["owner"]),
            int(fields["revision"]),
            bool(fields["copying"]),
            str(fields["store"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotStart(
            f"cannot read {path}, which says where the metadata is: {error!r}; restore the file"
            " from a backup of the folder"
        ) from error


def write_note(path: Path, note: MetadataNote) -> None:
    """Replace the note, durably. Raises CannotStart."""
    try:
        replace_durably(path, _text(note))
    except OSError as error:
        raise CannotStart(f"cannot write {path}: {error.strerror}") from error


def _text(note: MetadataNote) -> str:
    return json.dumps(asdict(note)) + "\n"


def _note_revision(path: Path, note: MetadataNote, revision: int) -> None:
    if revision > note.revision:
        # A full disk must not end the start: the older, lower number is as true.
        with suppress(CannotStart):
            write_note(path, replace(note, revision=revision))


def _tls(settings: Settings) -> ClientTls | None:
    files = (settings.meta_tls_ca, settings.meta_tls_cert, settings.meta_tls_key)
    if files == (None, None, None):
        return None
    try:
        return ClientTls(Tls(*files))
    except BadTls as error:
        raise CannotStart(f"TLS of meta: {error}") from None


def _password(file: Path | None) -> str:
    """The password in the file as it is now. Raises MetaError."""
    if file is None:
        return ""
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise MetaError(f"cannot read meta_password_file {file}: {error}") from error
    if not password:
        raise MetaError(f"meta_password_file {file} is empty")
    return password
