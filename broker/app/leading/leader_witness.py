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
from broker.ports.meta import MetaStore
from broker.process_settings import Settings


class LeaderWitness:
    """Made by `leader_witness`; `witness`: None where a data folder does its work."""

    def __init__(self, settings: Settings, witness: Witness | None) -> None:
        self._settings = settings
        self._witness = witness
        self._led: LedStore | None = None

    def watch(self, led: LedStore) -> None:
        """From now on this process leads."""
        self._led = led
        if self._witness is not None and isinstance(led.inner, EtcdMetaStore):
            self._witness.tell(_last_write(self._settings, led, led.inner))

    @property
    def is_over(self) -> bool:
        """Whether those that stand by need not be told any more."""
        return self._led is None or self._led.ended or self._led.deposed


@asynccontextmanager
async def leader_witness(settings: Settings, store: MetaStore) -> AsyncIterator[LeaderWitness]:
    """Have a witness while the block runs, if the metadata is where other hosts see it.

    The last deed of a leader in the block is to tell that it has ended. Where that failed, the
    witness goes on trying.
    """
    if not isinstance(store, EtcdMetaStore):
        # The kernel frees the leader's lock in the data folder, which is as fast.
        yield LeaderWitness(settings, None)
        return
    witness = Witness()
    watched = LeaderWitness(settings, witness)
    try:
        async with beside(witness.keep):
            yield watched
    finally:
        if watched.is_over:
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
