"""Looks whether the log of a cluster that never switched is where the settings of a process say.

Its nodes know that by their own settings: it is not in the metadata. A switch that took another
place for the source would have empty logs there.
"""

from broker.app.process_errors import CannotStart
from broker.app.stores.folder_markers import has_segment_files, read_prefix
from broker.app.stores.log_record import record_no_kafka, recorded_prefix
from broker.core.cluster.wal_alter import AlterRefusal, Impossible, prefix_of, shown
from broker.data_folder import DataFolder
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings


async def founded_elsewhere(settings: Settings, store: MetaStore) -> AlterRefusal | None:
    """Why these settings do not tell where the log is; None: as far as can be seen, they do.

    Of a cluster that never switched. Raises MetaError.
    """
    here, folder = prefix_of(settings.wal), DataFolder(settings.data_dir)
    there = await recorded_prefix(store)
    if has_segment_files(folder):
        # They tell more than the record, which is as a process was told that did not even start.
        there = ""
    elif there is None:
        there = _prefix_in(folder, here)
    if here == there:
        return None
    found = f"in Kafka, under the prefix {there}" if there else "in segment files"
    remedy = f"--wal kafka://HOST:PORT/{there}" if there else "without --wal"
    cause = (
        f"this process was started for a log in {shown(settings.wal)}, and the log of the nodes is"
        f" {found}: start all coordinators with the same --wal as the nodes, here {remedy}"
    )
    return AlterRefusal(Impossible.OTHER_SOURCE, cause)


async def agree_with_record(settings: Settings, folder: DataFolder, store: MetaStore) -> None:
    """Look whether the record of a store in etcd names Kafka where the log is in segment files.

    It is corrected where the folder has some: a process that was started with a wrong `wal` wrote
    it, before it was refused. CannotStart where they would begin now. Of a cluster that never
    switched. Raises MetaError.
    """
    prefix = None if settings.wal else await recorded_prefix(store)
    if not prefix:
        return
    if has_segment_files(folder):
        await record_no_kafka(store)
        return
    raise CannotStart(
        f"the log of the cluster is in Kafka under the prefix {prefix}, as its metadata in etcd"
        f" says, and data folder {folder.root} has none: start with"
        f" --wal kafka://HOST:PORT/{prefix}"
    )


def _prefix_in(folder: DataFolder, unknown: str) -> str:
    """By what nodes have left there; `unknown` where none has opened a log yet."""
    try:
        prefix = read_prefix(folder)
    except CannotStart as error:
        raise MetaError(str(error)) from error
    return prefix or unknown
