"""Opens the log of a data folder in Kafka, or says in one sentence why it cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from broker.app.process_errors import CannotStart
from broker.data_folder import DataFolder
from broker.etcd.place import etcd_place
from broker.folder_lock import make_folder, replace_durably
from broker.ports.meta import MetaStore
from broker.process_settings import MIB, Settings
from broker.wal.kafka.confluent_settings import BadClientFile
from broker.wal.kafka.entries import OnDamage
from broker.wal.kafka.kafka_url import KafkaPlace, kafka_place
from broker.wal.kafka.topic_ids import StoredTopicIds, TopicIdFiles, TopicIds

if TYPE_CHECKING:
    from broker.wal.kafka.kafka_wal import KafkaWal

PREFIX_FILE: Final = "prefix"


@contextmanager
def kafka_wal(
    settings: Settings, folder: DataFolder, cluster_id: str, ids: TopicIds, on_damage: OnDamage
) -> Iterator["KafkaWal"]:
    """The log that `settings.wal` names, connected until the block ends. Raises CannotStart."""
    try:
        # An extra: this module is imported by all brokers.
        from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(
            f"the log is to be in Kafka ({settings.wal}), and its client is not installed: {error};"
            " install it with: pip install 'tidemark[kafka]'"
        ) from error
    place = kafka_place(settings.wal)
    _bind(folder, place)
    sizes = KafkaSizes(
        segment_bytes=settings.segment_bytes,
        record_bytes_max=max(settings.frame_bytes_max, settings.txn_bytes_max) + MIB,
        skip_damage=settings.skip_damage,
    )
    try:
        wal = KafkaWal(place, cluster_id, sizes, ids=ids, on_damage=on_damage)
    except BadClientFile as error:
        raise CannotStart(f"cannot use {settings.wal}: {error}") from error
    try:
        yield wal
    finally:
        wal.close()


def topic_ids(settings: Settings, folder: DataFolder, store: MetaStore) -> TopicIds:
    """In the metadata where several hosts may have it; else in files, which are easy to remove."""
    files = TopicIdFiles(folder.kafka)
    if not settings.meta:
        return files
    return StoredTopicIds(store, files, f"the key {etcd_place(settings.meta).prefix}/tidemark/keys")


def refuse_log_in_kafka(folder: DataFolder) -> None:
    """Raises CannotStart when the log of the folder is in Kafka, and the settings do not say so."""
    prefix = _prefix(folder)
    if prefix:
        raise CannotStart(
            f"the log of data folder {folder.root} is in Kafka, under the prefix {prefix}; start"
            f" with --wal kafka://HOST:PORT/{prefix}, or name another --data-dir"
        )


def _bind(folder: DataFolder, place: KafkaPlace) -> None:
    """A data folder has one log for ever: metadata and log belong together."""
    if folder.log.is_dir() and any(it.is_dir() for it in folder.log.iterdir()):
        raise CannotStart(
            f"data folder {folder.root} has its log in segment files, which --wal {place.shown}"
            " would leave behind; start without --wal, or name another --data-dir"
        )
    prefix = _prefix(folder)
    if prefix and prefix != place.prefix:
        raise CannotStart(
            f"the log of data folder {folder.root} is in Kafka under the prefix {prefix}, not"
            f" {place.prefix}; correct --wal, or name another --data-dir"
        )
    if not prefix:
        make_folder(folder.kafka)
        replace_durably(folder.kafka / PREFIX_FILE, place.prefix + "\n")


def _prefix(folder: DataFolder) -> str:
    try:
        return (folder.kafka / PREFIX_FILE).read_text().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotStart(f"cannot read {folder.kafka / PREFIX_FILE}: {error}") from error
