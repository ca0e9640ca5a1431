"""What the record of a store in etcd says of where the log is, so that other data folders may join.

Without an effect where the metadata is not in etcd.
"""

from broker.app.stores.log_place import decode_alter
from broker.coordinator.leases.leadership import LedStore
from broker.coordinator.records import ALTER_KEY
from broker.etcd.etcd_store import EtcdMetaStore
from broker.ports.meta import MetaStore
from broker.wal.kafka.kafka_url import kafka_place


def log_for_record(place: str) -> str:
    """The words of the record for a place of the log; "" in the data folder, or unknown."""
    return f"kafka://{kafka_place(place).prefix}" if place else ""


async def keep_log_true(store: MetaStore) -> None:
    """Have the record say where the log is after a switch. Raises MetaError."""
    inner = _in_etcd(store)
    if inner is not None and (entry := await inner.get(ALTER_KEY)) is not None:
        await inner.log.correct(log_for_record(decode_alter(entry.value).place))


async def recorded_prefix(store: MetaStore) -> str | None:
    """The prefix of the log in Kafka, by the record; "" in a data folder, or unknown.

    None where the metadata is not in etcd. Raises MetaError.
    """
    inner = _in_etcd(store)
    return None if inner is None else (await inner.log.place()).removeprefix("kafka://")


async def record_no_kafka(store: MetaStore) -> None:
    """Have the record say that the log is in a data folder. Raises MetaError."""
    inner = _in_etcd(store)
    if inner is not None:
        await inner.log.correct(log_for_record(""))


def _in_etcd(store: MetaStore) -> EtcdMetaStore | None:
    inner = store.inner if isinstance(store, LedStore) else store
    return inner if isinstance(inner, EtcdMetaStore) else None
