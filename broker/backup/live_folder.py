"""The data folder of a live broker, read at one tick.

The order makes it consistent; README.md has the argument: the log files are held, then the metadata
is read, then the tick is chosen, then new log files are held. Broadcasts and commits wait from
before the metadata is read until the tick is closed. A switch of the log that begins before the
last step fails the backup.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Protocol, Self

from anyio import to_thread

from broker.backup.backup_failed import BackupFailed
from broker.backup.held_log import HeldLog
from broker.coordinator.json_records import decode_fields
from broker.coordinator.records import (
    ALTER_KEY,
    CLUSTER_KEY,
    COLLECTION_ID_KEY,
    COLLECTION_PREFIX,
    IN_DATABASE_PREFIX,
    STREAMING_VERSION_KEY,
    Cluster,
    decode_cluster,
)
from broker.data_folder import DataFolder
from broker.master.table.table_records import TABLE_PREFIXES
from broker.meta.sqlite_snapshot import MetadataSnapshot
from broker.model.cut import Cut
from broker.model.ids import TimeTick
from broker.ports.meta import MetaError

CATALOG: Final = (
    CLUSTER_KEY,
    COLLECTION_PREFIX,
    IN_DATABASE_PREFIX,
    COLLECTION_ID_KEY,
    STREAMING_VERSION_KEY,
    *TABLE_PREFIXES,
)
"""What may change without the cut lock. It has to be the same before and after the cut."""
CUTS_MAX: Final = 20
"""Cuts in a row in which somebody changed the catalog meanwhile; each takes milliseconds."""

Read = Callable[[], Awaitable[None]]


class CutCluster(Protocol):
    """Takes a cut of whole pchannels; calls `read` before its tick is chosen. See the client."""

    async def __call__(self, pchannels: Sequence[str], read: Read, /) -> tuple[None, Cut]: ...


class LiveFolder:
    """A context manager: files are held until the block ends. Raises BackupFailed."""

    def __init__(self, folder: DataFolder, cluster_id: str) -> None:
        """`cluster_id`: what the broker says of itself; the folder has to be that of this one."""
        self._folder = folder
        self._cluster_id = cluster_id
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self._folder.log_prefix.exists():
            raise BackupFailed(
                f"the log of {self._folder.root} is in Kafka, and a backup copies segment files;"
                " Kafka's replication protects such a log; a copy of its topics cannot be opened,"
                " because it has other offsets and IDs. To back up a broker whose metadata is in"
                " SQLite, move the log to segment files: `tidemark wal alter --to segmented`"
            )
        self.cluster = self._checked()
        self.held = self._open.enter_context(HeldLog(self._folder.log))
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def pchannels(self) -> Sequence[str]:
        return self.cluster.pchannels

    async def choose_tick(self, cut_cluster: CutCluster) -> TimeTick:
        """The tick at which everything is consistent; `metadata` is the state at this tick."""
        await to_thread.run_sync(self.held.link_from_start, self.pchannels)
        for _ in range(CUTS_MAX):
            _, cut = await cut_cluster(self.pchannels, self._read_metadata)
            if await to_thread.run_sync(self._catalog_is_unchanged):
                await to_thread.run_sync(self.held.link_new, self.pchannels)
                await to_thread.run_sync(self._refuse_begun_switch)
                return cut.tick
        raise BackupFailed(
            f"collections were created or dropped during each of {CUTS_MAX} cuts; try again later"
        )

    async def _read_metadata(self) -> None:
        self.metadata = await to_thread.run_sync(self._snapshot)

    def _snapshot(self) -> MetadataSnapshot:
        try:
            snapshot = MetadataSnapshot(self._folder.metadata)
        except MetaError as error:
            raise BackupFailed(str(error)) from error
        self._open.callback(snapshot.close)
        return snapshot

    def _catalog_is_unchanged(self) -> bool:
        later = self._snapshot()
        try:
            return _catalog(self.metadata) == _catalog(later)
        finally:
            later.close()

    def _refuse_begun_switch(self) -> None:
        """What was appended before the tick may be in the new log alone, or removed here."""
        later = self._snapshot()
        try:
            if _newest_switch(later) != self._switch:
                raise BackupFailed(
                    f"a switch of the log of {self._folder.root} began during the backup; take it"
                    " again when `tidemark wal status` says that the switch has ended"
                )
        finally:
            later.close()

    def _checked(self) -> Cluster:
        where = f"data folder {self._folder.root}"
        if self._folder.metadata_note.exists():
            raise BackupFailed(
                f"the metadata of {self._folder.root} is in etcd, and a backup takes that of"
                " SQLite alone; stop the broker, copy the folder, and save etcd with `etcdctl"
                " snapshot save`"
            )
        if not self._folder.metadata.is_file():
            raise BackupFailed(
                f"{where} of the broker is not on this machine; run the backup where the broker"
                " runs, or pass --data-dir if the folder has another name here"
            )
        snapshot = self._snapshot()
        try:
            self._switch = _newest_switch(snapshot)
            if _is_switching(self._switch):
                raise BackupFailed(
                    f"the log of {self._folder.root} is being switched; take the backup when"
                    " `tidemark wal status` says that it has ended"
                )
            value = snapshot.entries(CLUSTER_KEY).get(CLUSTER_KEY, b"")
            cluster = decode_cluster(CLUSTER_KEY, value)
        except MetaError as error:
            raise BackupFailed(f"{where}: {error}") from error
        finally:
            snapshot.close()
        if cluster.identity != self._cluster_id:
            raise BackupFailed(
                f"{where} is of cluster {cluster.identity}, the broker serves cluster"
                f" {self._cluster_id or 'unknown (it is of an older release)'}; run the backup on"
                " the machine of the broker"
            )
        return cluster


def _newest_switch(snapshot: MetadataSnapshot) -> bytes:
    return snapshot.entries(ALTER_KEY).get(ALTER_KEY, b"")


def _is_switching(alter: bytes) -> bool:
    if not alter:
        return False
    stage = decode_fields(ALTER_KEY, alter, lambda it: str(it["stage"]))
    return stage not in ("done", "aborted")


def _catalog(snapshot: MetadataSnapshot) -> Mapping[str, bytes]:
    return {key: value for prefix in CATALOG for key, value in snapshot.entries(prefix).items()}
