"""Opens the metadata of a data folder in etcd, and keeps the two from being mixed up with others.

Folder and store belong together, and have the same token: the folder in `metadata.json`, with the
prefix and the highest revisions seen there. Where the log is in Kafka, no folder has anything that
another process needs, so each host may have a folder of its own: a new one *joins*, which takes the
token over. Its processes are told the same `wal`, which the record of the store has, too: so a
process of another cluster does not join by mistake.
"""

import fcntl
import hashlib
import json
import os
import platform
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
from anyio import to_thread

from broker.app.process_errors import CannotStart
from broker.app.stores.log_record import keep_log_true, log_for_record
from broker.beside import beside
from broker.data_folder import DataFolder
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.leased_keys import TTL_S
from broker.etcd.password_file import etcd_password
from broker.etcd.place import etcd_place
from broker.folder_lock import create_durably, replace_durably
from broker.ports.meta import MetaError, UnusableStore
from broker.process_settings import Settings
from broker.transport.tls import BadTls, ClientTls, Tls

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
COORDINATOR: Final = "coordinator/"
"""Begins what a coordinator is announced as; the token of its folder follows."""
NOTE_S: Final = 10.0
"""Between two notes of what was seen: a backup that lacks no more is taken for the store itself."""


class MetadataUse(Enum):
    """What a process is to the cluster whose metadata it opens."""

    ALONE = auto()
    """It leads, and keeps all others out of the data folder."""
    CANDIDATE = auto()
    """It leads, or stands by."""
    NODE = auto()


@dataclass(frozen=True, slots=True)
class MetadataNote:
    """What `metadata.json` says. `revision`: the highest one that a process has seen.

    `beaten`: the highest one of the key of `broker/etcd/store_beat.py`, 0 if none was seen.
    `copying`: the metadata is still in `meta.sqlite`; see `metadata_copy.py`. `joined`: the cluster
    was founded from another folder.
    """

    prefix: str
    owner: str
    revision: int
    copying: bool = False
    store: str = "etcd"
    joined: bool = False
    beaten: int = 0

    @property
    def new(self) -> bool:
        """Whether no process has opened the store yet."""
        return self.revision == 0


@asynccontextmanager
async def etcd_metadata(
    settings: Settings, folder: DataFolder, use: "MetadataUse"
) -> AsyncIterator[EtcdMetaStore]:
    """The store that `settings.meta` names, open until the block ends. Raises CannotStart."""
    place = etcd_place(settings.meta)
    if folder.metadata.exists():
        raise CannotStart(
            f"the metadata of {folder.root} is in {folder.metadata.name}, and meta names {place}:"
            f" move it there with `tidemark meta copy --data-dir {folder.root} --meta {place}`,"
            " start without meta, or pass another --data-dir"
        )
    joins = bool(settings.wal) and use is not MetadataUse.ALONE
    fresh = joins and not folder.metadata_note.exists()
    if fresh:
        note = MetadataNote(place.prefix, _new_token(), revision=0)
    else:
        note = made_note(folder.metadata_note, place.prefix)
    if note.prefix != place.prefix:
        raise CannotStart(
            f"the metadata of {folder.root} is below the prefix {note.prefix} in etcd, and meta"
            f" names {place}: correct the prefix, or pass another --data-dir"
        )
    if note.joined:
        _check_joined(settings, folder, use)
    async with open_etcd(settings, note, joins=fresh) as store:
        if fresh:
            note = _kept_note(folder.metadata_note, note, store.owner)
        if use is MetadataUse.ALONE:
            await refuse_coordinators(store, folder)
        with _told():
            # The settings may be those of before a switch.
            await keep_log_true(store)
        notes = RevisionNotes(store, folder.metadata_note)
        notes.note()
        if use is MetadataUse.NODE:  # which has not even a part of the folder for itself
            yield store
            return
        try:
            async with beside(notes.keep):
                yield store
        finally:  # a stop is a cancellation
            notes.note()


@asynccontextmanager
async def open_etcd(
    settings: Settings, note: MetadataNote, *, joins: bool = False
) -> AsyncIterator[EtcdMetaStore]:
    """The store of this note, open until the block ends. Raises CannotStart.

    `joins`: of whatever owner, if its log is where `settings.wal` says.
    """
    try:
        store = await EtcdMetaStore.open(
            etcd_place(settings.meta),
            owner=note.owner,
            tls=etcd_tls(settings),
            password=partial(etcd_password, settings.meta_password_file),
            # Who joined has seen a store, though an earlier release did not note which revision.
            revision=max(note.revision, int(note.joined)),
            beaten=note.beaten,
            log=log_for_record(settings.wal),
            joins=joins,
        )
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with store:
        yield store


def refuse_joined(folder: DataFolder) -> None:
    """Raises CannotStart for a folder that joined: the segment files are in the founding one."""
    if folder.metadata_note.exists() and read_note(folder.metadata_note).joined:
        raise CannotStart(
            f"the log of the cluster is in the segment files of the data folder from which it was"
            f" founded, and {folder.root} is another one: start there"
        )


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
            new = MetadataNote(prefix, _new_token(), revision=0, copying=copying)
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
            # These are not in the note of an earlier release.
            bool(fields.get("joined", False)),
            int(fields.get("beaten", 0)),
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


def _kept_note(path: Path, note: MetadataNote, owner: str) -> MetadataNote:
    """The note of a new folder, durable, after its store was opened with this owner."""
    try:
        # A node may find a new folder at the same time: both have the owner that the store has.
        create_durably(path, _text(replace(note, owner=owner, joined=owner != note.owner)))
    except OSError as error:
        raise CannotStart(f"cannot write {path}: {error.strerror}") from error
    kept = read_note(path)
    if (kept.prefix, kept.owner) != (note.prefix, owner):
        raise CannotStart(
            f"another process has begun to use {path.parent} with the prefix {kept.prefix}; name"
            " another --data-dir"
        )
    return kept


def _check_joined(settings: Settings, folder: DataFolder, use: MetadataUse) -> None:
    if use is MetadataUse.ALONE:
        raise CannotStart(
            f"data folder {folder.root} is one of several of its cluster, and this command wants"
            " the cluster for itself: use `tidemark coordinator` and `tidemark node`, or the folder"
            " from which the cluster was founded"
        )
    if not settings.wal:
        raise CannotStart(
            f"data folder {folder.root} is one of several of its cluster, whose log is in Kafka:"
            " pass --wal as to the other processes"
        )


async def refuse_coordinators(store: EtcdMetaStore, folder: DataFolder) -> None:
    """Raises CannotStart for those of other folders: the lock of this one keeps out its own."""
    try:
        present = await store.present()
    except MetaError as error:
        raise CannotStart(str(error)) from error
    here = f"{COORDINATOR}{folder_token(folder.root)}/"
    others = [it for it in present if it.startswith(COORDINATOR) and not it.startswith(here)]
    if others:
        found = ", ".join(sorted(present[it].decode(errors="replace") for it in others))
        raise CannotStart(
            f"coordinators of this cluster run on other hosts ({found}): stop them, and start this"
            f" again {TTL_S} s after the last has ended"
        )


def folder_token(root: Path) -> str:
    """Tells a folder of this machine from all others, until the machine starts again.

    Taken from the machine, not kept in the folder, which somebody might copy to another one.
    """
    state = root.stat()
    try:
        boot = BOOT_ID.read_text()
    except OSError:
        boot = f"{platform.node()} {psutil.boot_time():.0f}"
    return hashlib.sha256(f"{boot} {state.st_dev} {state.st_ino}".encode()).hexdigest()[:16]


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except MetaError as error:
        raise CannotStart(str(error)) from error


def _new_token() -> str:
    return secrets.token_hex(16)


def _text(note: MetadataNote) -> str:
    return json.dumps(asdict(note)) + "\n"


class RevisionNotes:
    """Keeps in `metadata.json` what the next start must find in etcd at least."""

    def __init__(self, store: EtcdMetaStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._refused = False

    async def keep(self) -> None:
        """Note again and again, until the store is noticed to be another one."""
        while True:
            await anyio.sleep(NOTE_S)
            try:
                await self._store.beat()
            except UnusableStore:
                # Whoever uses the store ends with the reason. What it says now is not noted: a
                # newer backup may have a lower revision.
                self._refused = True
                return
            except MetaError:
                continue  # it is away; whoever uses it says so
            # On a thread, because a slow disk must not delay what renews leases.
            await to_thread.run_sync(self.note)

    def note(self) -> None:
        """Note what was seen by now, unless another process is about to."""
        if self._refused:
            return
        with _alone_in(self._path.parent) as alone:
            if not alone:
                return
            # A full disk must not end the process: the older, lower numbers are as true. And a
            # file that somebody has deleted, so that a restored etcd is accepted, stays deleted.
            with suppress(CannotStart):
                old = read_note(self._path)
                new = replace(
                    old,
                    revision=max(old.revision, self._store.revision),
                    beaten=max(old.beaten, self._store.beaten),
                )
                if new != old and old.owner == self._store.owner:
                    write_note(self._path, new)


@contextmanager
def _alone_in(folder: Path) -> Iterator[bool]:
    """Whether no other process notes in this folder; none does until the block ends."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        alone = True
        with suppress(OSError):  # a file system without such locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
        yield alone
    finally:
        os.close(descriptor)


def etcd_tls(settings: Settings) -> ClientTls | None:
    """How etcd is spoken to; None without TLS. Raises CannotStart."""
    files = (settings.meta_tls_ca, settings.meta_tls_cert, settings.meta_tls_key)
    if files == (None, None, None):
        return None
    try:
        return ClientTls(Tls(*files))
    except BadTls as error:
        raise CannotStart(f"TLS of meta: {error}") from None
