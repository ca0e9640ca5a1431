"""Notices for a node that its etcd was restored from a backup.

A coordinator notices by what it writes. A node writes next to nothing, and would keep the term of a
leader that the restored etcd does not know, so that it joins none of the coordinators to come.
"""

import anyio

from broker.app.stores.etcd_metadata import NOTE_S
from broker.etcd.etcd_store import EtcdMetaStore
from broker.ports.meta import MetaError, MetaStore, UnusableStore


async def until_unusable(store: MetaStore) -> None:
    """Look every NOTE_S. Raises UnusableStore; returns at once where no etcd is used."""
    if not isinstance(store, EtcdMetaStore):
        return
    while True:
        await anyio.sleep(NOTE_S)
        try:
            await store.beat()
        except UnusableStore:
            raise
        except MetaError:
            continue  # it is away; whoever uses it says so
