"""A witness of the leader: when the leader's process has ended, it writes that into the metadata.

So those that stand by on other hosts follow a leader that was killed as fast as one that stopped in
order. The witness is a process of the same host: when the host is gone, or the container, the lease
of the leader decides.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.beside import beside
from broker.coordinator.leases.leader_records import LEADER_KEY, ended_puts
from broker.coordinator.leases.leadership import LedStore
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.last_write import LastWrite
from broker.etcd.witness import Witness
from broker.process_settings import Settings


@asynccontextmanager
async def leader_witness(settings: Settings, led: LedStore) -> AsyncIterator[None]:
    """Have a witness while the block runs, if the metadata is where other hosts see it.

    The block ends with the last deed of the leader, which is to tell that it has ended. Where that
    failed, the witness goes on trying.
    """
    store = led.inner
    if not isinstance(store, EtcdMetaStore):
        yield  # a data folder: the kernel frees the leader's lock, which is as fast
        return
    witness = Witness(_last_write(settings, led, store))
    try:
        async with beside(witness.keep):
            yield
    finally:
        if led.ended or led.deposed:
            await witness.dismiss()
        else:
            witness.leave()


def _last_write(settings: Settings, led: LedStore, store: EtcdMetaStore) -> LastWrite:
    # Without an effect once somebody has followed this leader. Repeated, it says the same.
    request = store.repeatable(ended_puts(led.term), {LEADER_KEY: led.revision})
    return LastWrite(
        settings.meta,
        request.hex(),
        settings.leader_lease_s,  # after it the others do not need to be told
        f"the leader of term {led.term}",
        _text(settings.meta_tls_ca),
        _text(settings.meta_tls_cert),
        _text(settings.meta_tls_key),
        _text(settings.meta_password_file),
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
