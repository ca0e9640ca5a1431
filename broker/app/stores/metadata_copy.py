"""Moves the metadata of a stopped broker between SQLite in its data folder and etcd.

Both stores are there until the copy was compared, and no broker starts on a folder with both. So an
interrupted move is repeated, in either direction once both are equal.

Revisions become others, and keep their order, which has a meaning: what was written together, or
later than something else, still is. So each write of the source is a write here.

Beside SQLite the ids of topics in Kafka are in files of the data folder. On the way back they go
there; on the way to etcd they are taken from there when a topic is opened.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.process_errors import CannotStart
from broker.app.stores.etcd_metadata import (
    made_note,
    open_etcd,
    read_note,
    refuse_coordinators,
    write_note,
)
from broker.app.stores.log_place import decode_alter
from broker.coordinator.live_config.config_records import LOADED_PREFIX
from broker.coordinator.records import ALTER_KEY
from broker.core.cluster.wal_alter import SEGMENTED
from broker.data_folder import DataFolder, hold, hold_node
from broker.etcd.place import EtcdPlace, etcd_place
from broker.folder_lock import sync_folder
from broker.meta.sqlite import SqliteMetaStore
from broker.ports.meta import MetaEntry, MetaError, MetaStore
from broker.ports.meta_writes import all_entries, split_write
from broker.ports.wal import WriterFailed
from broker.process_settings import Settings
from broker.wal.kafka.topic_ids import TOPIC_PREFIX, TopicIdFiles

KEPT = "meta.sqlite.moved"
"""The file that SQLite had, kept until somebody deletes it."""
DRAFT = "meta.sqlite.draft"

Entries = dict[str, MetaEntry]


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """What was copied, and compared."""

    entries: int
    bytes: int
    source: str
    target: str


async def to_etcd(settings: Settings) -> MetadataCopy:
    """Move the metadata of `settings.data_dir` from SQLite to `settings.meta`. CannotStart."""
    place = etcd_place(settings.meta)
    with _alone(settings) as folder:
        if not folder.metadata.exists():
            raise CannotStart(f"{folder.root} has no meta.sqlite to copy")
        note = made_note(folder.metadata_note, place.prefix, copying=True)
        if note.prefix != place.prefix:
            raise CannotStart(
                f"a copy of {folder.metadata} to the prefix {note.prefix} has not finished: repeat"
                f" it, or delete {folder.metadata_note} and copy to {place} then"
            )
        with _told():
            async with await SqliteMetaStore.open(folder.metadata) as sqlite:
                # Ids of topics that a copy has left there were not kept up to date.
                source, _ = _apart(await _entries(sqlite))
        async with AsyncExitStack() as stack:
            try:
                store = await stack.enter_async_context(open_etcd(settings, note))
                # What they write would be deleted: a move back from etcd may not have finished.
                await refuse_coordinators(store, folder)
                if note.new:
                    await _refuse_entries(store, place)
            except CannotStart:
                if note.new:  # nothing was begun: the broker may start as before
                    folder.metadata_note.unlink()
                raise
            # From here on what is below the prefix may be ours, and incomplete.
            write_note(folder.metadata_note, replace(note, copying=True, revision=store.revision))
            with _told():
                await _fill(store, source)
                await _compare(store, source, str(place))
            note = replace(note, copying=False, revision=store.revision)
        write_note(folder.metadata_note, note)
        # Until here a start was refused; a broker with `meta` goes on from here.
        folder.metadata.rename(folder.root / KEPT)
        sync_folder(folder.root)
        return _report(source, str(folder.root / KEPT), str(place))


async def to_sqlite(settings: Settings) -> MetadataCopy:
    """Move it from etcd to SQLite in the data folder. CannotStart."""
    place = etcd_place(settings.meta)
    with _alone(settings) as folder:
        if not folder.metadata_note.exists():
            raise CannotStart(f"the metadata of {folder.root} is not in etcd")
        note = read_note(folder.metadata_note)
        if note.copying:
            raise CannotStart(f"a copy of {folder.metadata} to etcd has not finished: repeat it")
        draft = folder.root / DRAFT
        _remove(draft)
        async with open_etcd(settings, note) as store:
            await refuse_coordinators(store, folder)
            with _told():
                found = await _entries(store)
                if not found:
                    raise MetaError(f"{place} is empty")
                if note.joined:
                    _refuse_segment_files(folder, found)
                source, topics = _apart(found)
                async with await SqliteMetaStore.open(draft) as target:
                    await _fill(target, source)
                    await _compare(target, source, str(draft))
                # Coordinators come one by one, and nodes of other hosts write terms without one.
                if await _entries(store) != found:
                    raise MetaError(
                        f"{place} has changed meanwhile: stop all coordinators and nodes, and"
                        " repeat it"
                    )
            await refuse_coordinators(store, folder)
        await _keep_topics(folder, topics)
        draft.rename(folder.metadata)
        sync_folder(folder.root)
        folder.metadata_note.unlink()
        sync_folder(folder.root)
        return _report(found, str(place), str(folder.metadata))


def _refuse_segment_files(folder: DataFolder, found: Entries) -> None:
    """Of a folder that joined: a broker there would begin an empty log under this metadata."""
    if ALTER_KEY not in found:
        return
    alter = decode_alter(found[ALTER_KEY].value)
    if SEGMENTED in ((alter.place,) if alter.ended else (alter.source, alter.target)):
        raise CannotStart(
            "the log of the cluster, or a part of it, is in the segment files of the data folder"
            f" from which it was founded, and {folder.root} is another one: copy the metadata there"
        )


def _apart(found: Entries) -> tuple[Entries, Entries]:
    """Without the ids of topics in Kafka, and these."""
    topics = {key: entry for key, entry in found.items() if key.startswith(TOPIC_PREFIX)}
    return {key: entry for key, entry in found.items() if key not in topics}, topics


async def _keep_topics(folder: DataFolder, topics: Entries) -> None:
    """Durably, before anything is in use that needs them."""
    files = TopicIdFiles(folder.kafka)
    try:
        for key, entry in topics.items():
            await files.remember(key.removeprefix(TOPIC_PREFIX), entry.value.decode())
    except WriterFailed as error:
        raise CannotStart(str(error)) from error


async def _refuse_entries(store: MetaStore, place: EtcdPlace) -> None:
    with _told():
        found = await store.list("", limit=1)
    if found:
        raise CannotStart(f"{place} has entries already, such as {found[0][0]}: name a new prefix")


async def _entries(store: MetaStore) -> Entries:
    """All of them, but the marks of loads: these name revisions of the store that they are in."""
    return {
        key: entry
        async for key, entry in all_entries(store, "")
        if not key.startswith(LOADED_PREFIX)
    }


async def _fill(store: MetaStore, source: Entries) -> None:
    """Give the store these entries and no others, in the order of their revisions."""
    others = [key async for key, _ in all_entries(store, "") if key not in source]
    for _, some in split_write({}, others):
        await store.write({}, deletes=some)
    writes: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
    for key, entry in source.items():
        writes[entry.revision][key] = entry.value
    for _, puts in sorted(writes.items()):
        await store.write(puts)


async def _compare(store: MetaStore, source: Entries, target: str) -> None:
    copied, wanted = _ranked(await _entries(store)), _ranked(source)
    if copied != wanted:
        differ = sorted(it for it in {*copied, *wanted} if copied.get(it) != wanted.get(it))
        raise MetaError(f"{target} differs after the copy, first at {differ[0]}; repeat it")


def _ranked(entries: Entries) -> dict[str, tuple[bytes, int]]:
    """Values, and how many revisions lie below that of each."""
    ranks = {it: rank for rank, it in enumerate(sorted({it.revision for it in entries.values()}))}
    return {key: (entry.value, ranks[entry.revision]) for key, entry in entries.items()}


@contextmanager
def _alone(settings: Settings) -> Iterator[DataFolder]:
    """The folder, with its broker and all of its nodes kept out. DataFolderError."""
    with ExitStack() as stack:
        folder = stack.enter_context(hold(settings.data_dir))
        for lock in sorted(folder.root.glob("node-*.lock")):
            number = lock.stem.removeprefix("node-")
            if number.isdigit():
                stack.enter_context(hold_node(folder.root, int(number)))
        yield folder


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except MetaError as error:
        raise CannotStart(str(error)) from error


def _report(source: Entries, whence: str, target: str) -> MetadataCopy:
    size = sum([len(entry.value) for entry in source.values()])
    return MetadataCopy(len(source), size, whence, target)


def _remove(draft: Path) -> None:
    """With what SQLite keeps beside it."""
    for path in draft.parent.glob(f"{draft.name}*"):
        path.unlink()
