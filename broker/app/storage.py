"""Opens what a process keeps its data in, and says in one sentence why it cannot.

Owns the choice of drivers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import structlog

from broker.app.start_failures import CannotStart
from broker.config import Settings
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.leases.leadership import LedStore, lead
from broker.core.cluster.assignment import STREAMING_VERSION
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.model.failure import Refused
from broker.model.ids import PChannelName
from broker.ports.meta import MetaError
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.damage_registry import DamageRegistry
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.settings import SegmentedSettings
from broker.wal.watched import Unreadable

LEAD_AGAIN_S = 0.5

log = structlog.get_logger("tidemark")


@asynccontextmanager
async def metadata(folder: DataFolder) -> AsyncIterator[SqliteMetaStore]:
    """The metadata of the folder, open until the block ends. Raises CannotStart."""
    try:
        store = await SqliteMetaStore.open(folder.metadata)
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with store:
        yield store


async def found(
    store: SqliteMetaStore, pchannels: tuple[PChannelName, ...], *, streaming: bool
) -> LedStore:
    """The metadata for the coordinator of a cluster of these pchannels. Raises CannotStart.

    Waits while metadata that were founded before take no writes, as everything behind it does.
    """
    try:
        await found_cluster(store, pchannels, STREAMING_VERSION if streaming else 0)
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    except MetaError as error:
        raise CannotStart(str(error)) from error
    told = False
    while True:
        try:
            return await lead(store)
        except Refused as refused:
            raise CannotStart(refused.refusal.cause) from refused
        except MetaError as error:
            if not told:
                log.warning("waiting for the metadata to take writes", error=str(error))
            told = True
            await anyio.sleep(LEAD_AGAIN_S)


def segmented_wal(settings: Settings, folder: DataFolder, damages: DamageRegistry) -> SegmentedWal:
    """The log of the folder; what is damaged in it is told once a place, and listed."""
    sizes = SegmentedSettings(
        segment_bytes=settings.segment_bytes, skip_damage=settings.skip_damage
    )
    return SegmentedWal(OsFiles(folder.log), sizes, on_damage=partial(_tell_damage, damages))


def of_damage(log_folder: Path, unreadable: Unreadable) -> str:
    """What a person can do about a log that no further try would open."""
    if isinstance(unreadable, UnknownFormat):
        return f"cannot open {log_folder}/{unreadable}; start the program that wrote it"
    return (
        f"cannot open {log_folder}/{unreadable}; put the file back from a copy, or set"
        " TIDEMARK_SKIP_DAMAGE=true to lose what is damaged and read the rest"
    )


def _tell_damage(damages: DamageRegistry, damage: Corrupt) -> None:
    if damages.met(damage):
        place = {"file": damage.file, "offset": damage.offset, "why": damage.reason}
        log.error("damaged record met", **place, skipped=damages.skipped)
