"""Opens the metadata and the log of a data folder, or says in one sentence why it cannot."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from broker.app.process_errors import CannotStart
from broker.app.stores.etcd_metadata import MetadataUse, etcd_metadata, refuse_other_place
from broker.app.stores.kafka_storage import kafka_wal, refuse_log_in_kafka, topic_ids
from broker.backup.held_log import remove_left_behind
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.ports.meta import MetaError, MetaStore
from broker.ports.wal import Corrupt, UnknownFormat, Unsuitable
from broker.process_settings import Settings
from broker.wal.damage_registry import DamageRegistry
from broker.wal.disk_reserve import DiskReserve
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.settings import SegmentedSettings
from broker.wal.watched import Unreadable, WatchedWal

log = structlog.get_logger("tidemark")


@dataclass(frozen=True, slots=True)
class LogStorage:
    """Where the log of a process is, and the damaged places that were met in it."""

    folder: DataFolder
    wal: WatchedWal
    damages: DamageRegistry


@asynccontextmanager
async def metadata(
    settings: Settings, folder: DataFolder, use: MetadataUse = MetadataUse.ALONE
) -> AsyncIterator[MetaStore]:
    """The metadata store of the folder, open until the block ends. Raises CannotStart."""
    if settings.meta:
        async with etcd_metadata(settings, folder, use) as elsewhere:
            yield elsewhere
        return
    refuse_other_place(folder)
    try:
        store = await SqliteMetaStore.open(folder.metadata)
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with store:
        yield store


def disk_reserve(settings: Settings, folder: DataFolder) -> DiskReserve:
    """The reserve of disk space, released here if the disk is full: a start needs space."""
    reserve = DiskReserve(folder.reserve, settings.reserve_bytes)
    reserve.look_now()
    return reserve


def segmented_wal(settings: Settings, folder: DataFolder, damages: DamageRegistry) -> SegmentedWal:
    """The log of the folder. Logs each damaged place once, and keeps a list of them."""
    # A backup that was killed: its links would keep what retention removes on the disk.
    remove_left_behind(folder.log)
    sizes = SegmentedSettings(
        segment_bytes=settings.segment_bytes, skip_damage=settings.skip_damage
    )
    return SegmentedWal(OsFiles(folder.log), sizes, on_damage=partial(_log_damage, damages))


@contextmanager
def log_storage(
    settings: Settings, folder: DataFolder, cluster_id: str, store: MetaStore
) -> Iterator[LogStorage]:
    """The log of the folder, in Kafka if the settings say so, until the block ends.

    `cluster_id` keeps clusters that share a Kafka from taking each other's topics. `store`: the
    metadata of the folder. Raises CannotStart.
    """
    damages = DamageRegistry(skipped=settings.skip_damage)
    if not settings.wal:
        refuse_log_in_kafka(folder)
        yield LogStorage(folder, WatchedWal(segmented_wal(settings, folder, damages)), damages)
        return
    report = partial(_log_damage, damages)
    with kafka_wal(settings, folder, cluster_id, topic_ids(settings, folder, store), report) as wal:
        yield LogStorage(folder, WatchedWal(wal), damages)


def unreadable_log(log_folder: Path, unreadable: Unreadable) -> str:
    """The error sentence about a log that no retry would open, with what to do."""
    if isinstance(unreadable, Unsuitable):
        return f"cannot open the log: {unreadable}"
    if isinstance(unreadable, Corrupt) and unreadable.unit != "byte":
        return (
            f"cannot open the log: {unreadable}; set TIDEMARK_SKIP_DAMAGE=true to skip what cannot"
            " be read, and read the rest"
        )
    if isinstance(unreadable, UnknownFormat):
        return f"cannot open {log_folder}/{unreadable}; start the release that wrote it"
    return (
        f"cannot open {log_folder}/{unreadable}; restore the file from a backup, or set"
        " TIDEMARK_SKIP_DAMAGE=true to skip the damaged records and read the rest"
    )


def _log_damage(damages: DamageRegistry, damage: Corrupt) -> None:
    if damages.met(damage):
        place = {"file": damage.file, "offset": damage.offset, "why": damage.reason}
        log.error("damaged record found", **place, skipped=damages.skipped)
