"""What a cluster is made of, decided at its first start and fixed in the store.

Owns the cluster record: the names of the pchannels, which can only become more, and the control
channel's host, which never changes. Never starts anything.
"""

from broker.coordinator.records import (
    CLUSTER_KEY,
    INCARNATION_KEY,
    Cluster,
    decode_cluster,
    decode_number,
    encode_cluster,
    encode_number,
)
from broker.core.naming import control_host
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.ports.meta import Conflict, MetaError, MetaStore

ATTEMPTS_MAX = 8


async def found_cluster(store: MetaStore, pchannels: tuple[PChannelName, ...]) -> Cluster:
    """The cluster over this store, made or grown to `pchannels` when need be; idempotent.

    Raises Refused(INVALID_ARGUMENT), with a sentence for the person who starts the broker, when
    the store belongs to a cluster of another name or with more pchannels; MetaError.
    """
    for _ in range(ATTEMPTS_MAX):
        entry = await store.get(CLUSTER_KEY)
        if entry is None:
            cluster, revision = Cluster(pchannels, control_host(pchannels)), 0
        else:
            before = decode_cluster(CLUSTER_KEY, entry.value)
            if before.pchannels == pchannels:
                return before
            _check_growth(before.pchannels, pchannels)
            cluster, revision = Cluster(pchannels, before.control_host), entry.revision
        try:
            await store.write(
                {CLUSTER_KEY: encode_cluster(cluster)}, expect={CLUSTER_KEY: revision}
            )
        except Conflict:
            continue
        return cluster
    raise MetaError(f"{CLUSTER_KEY}: lost {ATTEMPTS_MAX} races for this record")


async def next_incarnation(store: MetaStore) -> int:
    """A number above that of every coordinator before, durable when this returns. MetaError."""
    for _ in range(ATTEMPTS_MAX):
        entry = await store.get(INCARNATION_KEY)
        number = 1 + (decode_number(INCARNATION_KEY, entry.value) if entry else 0)
        try:
            await store.write(
                {INCARNATION_KEY: encode_number(number)},
                expect={INCARNATION_KEY: entry.revision if entry else 0},
            )
        except Conflict:
            continue
        return number
    raise MetaError(f"{INCARNATION_KEY}: lost {ATTEMPTS_MAX} races for this record")


def _check_growth(before: tuple[PChannelName, ...], after: tuple[PChannelName, ...]) -> None:
    if not set(before) & set(after):
        raise Refused(
            StreamingCode.INVALID_ARGUMENT,
            f"the metadata belongs to another cluster, with pchannels {before[0]} to {before[-1]}; "
            f"this start asks for {after[0]} to {after[-1]}",
        )
    if not set(before) <= set(after):
        raise Refused(
            StreamingCode.INVALID_ARGUMENT,
            f"the cluster has {len(before)} pchannels, and this start asks for {len(after)}: "
            f"their number can grow and never shrink; start with at least {len(before)}",
        )
