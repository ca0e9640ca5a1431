"""Opens the log of a data folder in Kafka, or says in one sentence why it cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker.app.process_errors import CannotStart
from broker.data_folder import DataFolder
from broker.etcd.place import etcd_place
from broker.ports.meta import MetaStore
from broker.process_settings import MIB, Settings
from broker.wal.kafka.confluent_settings import BadClientFile
from broker.wal.kafka.entries import OnDamage
from broker.wal.kafka.kafka_url import kafka_place
from broker.wal.kafka.topic_ids import StoredTopicIds, TopicIdFiles, TopicIds

if TYPE_CHECKING:
    from broker.wal.kafka.kafka_wal import KafkaWal


@contextmanager
def kafka_wal(
    settings: Settings, cluster_id: str, ids: TopicIds, on_damage: OnDamage
) -> Iterator["KafkaWal"]:
    """The log that `settings.wal` names, connected until the block ends. Raises CannotStart."""
    try:
        # An extra: this module is imported by all brokers.
        from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(
            f"the log is to be in Kafka ({settings.wal}), and its client is not installed: {error};"
            " install it with: pip install '.[kafka]' in Tidemark's folder"
        ) from error
    place = kafka_place(settings.wal)
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
