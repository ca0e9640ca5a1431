"""Opens the metadata and the log of a data folder, or says in one sentence why it cannot."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from broker.app.process_errors import CannotStart
from broker.app.stores.etcd_metadata import (
    MetadataUse,
    etcd_metadata,
    refuse_joined,
    refuse_other_place,
)
from broker.app.stores.folder_markers import FolderMarkers, check_founded
from broker.app.stores.kafka_storage import kafka_wal, topic_ids
from broker.app.stores.log_record import keep_log_true
from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching.channel_switch import ChannelSwitch
from broker.app.switching.copy_room import why_no_room
from broker.app.switching.founded_place import agree_with_record
from broker.app.switching.log_drivers import LogDrivers
from broker.app.switching.placed_wal import PlacedWal
from broker.backup.held_log import remove_left_behind
from broker.core.cluster.wal_alter import Alter, AlterStage, prefix_of, shown
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.ports.meta import MetaError, MetaStore
from broker.ports.switching.log_copies import CopyingWal
from broker.ports.wal import Corrupt, UnknownFormat, Unsuitable, WriterFailed
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
    switch: ChannelSwitch


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


@asynccontextmanager
async def log_storage(
    settings: Settings, folder: DataFolder, cluster_id: str, store: MetaStore
) -> AsyncIterator[LogStorage]:
    """The logs of the cluster, where its metadata says that they lie, until the block ends.

    In a cluster that never switched that is where the settings say. `cluster_id` keeps clusters
    that share a Kafka from taking each other's topics. Raises CannotStart.
    """
    damages = DamageRegistry(skipped=settings.skip_damage)
    places = StoredPlaces(store, settings.wal)
    try:
        alter = await places.alter()
        if alter is None:
            check_founded(settings, folder)
            await agree_with_record(settings, folder, store)
    except MetaError as error:
        raise CannotStart(str(error)) from error
    markers, known = FolderMarkers(folder), _known_switches(alter)
    if alter is not None:
        markers.check(alter)
        _note_difference(settings, alter)

    def url_of(place: str) -> str:
        # A later switch may name another Kafka; what the settings say is from before it.
        return place if places.newest_to(place) > known else _newest(settings, place)

    def make(place: str, stack: ExitStack) -> CopyingWal:
        if not place:
            refuse_joined(folder)
            return segmented_wal(settings, folder, damages)
        given = settings.model_copy(update={"wal": place})
        ids = topic_ids(settings, folder, store)
        report = partial(_log_damage, damages)
        return stack.enter_context(kafka_wal(given, cluster_id, ids, report))

    with LogDrivers(make, url_of, partial(why_no_room, settings, folder)) as drivers:
        # At once, so that what is missing or wrong ends the start.
        make_driver(drivers, settings.wal if alter is None else alter.place)
        wal = WatchedWal(PlacedWal(places, drivers))
        yield LogStorage(
            folder,
            wal,
            damages,
            ChannelSwitch(places, drivers, markers, partial(keep_log_true, store)),
        )


def make_driver(drivers: LogDrivers, place: str) -> None:
    """Make the driver of a place. Raises CannotStart."""
    try:
        drivers.at(place)
    except WriterFailed as error:
        raise CannotStart(str(error)) from error


def _newest(settings: Settings, place: str) -> str:
    """The settings know the servers of a Kafka better than what was written at its switch."""
    same = bool(settings.wal) and prefix_of(settings.wal) == prefix_of(place)
    return settings.wal if same else place


def _known_switches(alter: Alter | None) -> int:
    """How many switches the settings of a process may know of that starts now."""
    if alter is None:
        return 0
    # To a copy nothing has moved yet: the settings are still about the log of before.
    copies = alter.stage in (AlterStage.COPYING, AlterStage.ABORTING, AlterStage.ABORTED)
    return alter.number - copies


def _note_difference(settings: Settings, alter: Alter) -> None:
    if prefix_of(settings.wal) != prefix_of(alter.place):
        log.warning(
            "the log was switched since this process was set up; change its settings",
            wal=shown(settings.wal),
            log=shown(alter.place),
        )


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
