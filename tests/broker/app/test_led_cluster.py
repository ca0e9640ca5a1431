"""What ends the start of a coordinator, and what it waits for."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from broker.app import CannotStart, bind, led_cluster
from broker.app.leading.folder_candidates import candidate_of
from broker.app.stores import store_outages
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.leases.leader_lease import LeaderLease
from broker.coordinator.leases.leader_records import LEADER_KEY
from broker.coordinator.leases.leadership import Deposed, lead
from broker.coordinator.records import (
    CLUSTER_KEY,
    COLLECTION_ID_KEY,
    collection_key,
    encode_number,
)
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.ports.meta import MetaEntry, MetaError, MetaStore
from broker.process_settings import Settings
from tests.broker.coordinator.fakes import ShakyStore

LISTEN = "127.0.0.1:0"


async def term(root: Path) -> int:
    """The term of the first start in this folder."""
    with bind(LISTEN) as bound:
        async with led_cluster.led_cluster(
            Settings(listen=LISTEN), DataFolder(root), bound, {}
        ) as cluster:
            return cluster.store.term


def failing(monkeypatch: pytest.MonkeyPatch, failures: Sequence[MetaError]) -> None:
    """Let the indexes of the catalog fail so often."""
    left = list(failures)

    async def ensure_indexes(_: MetaStore) -> bool:
        if left:
            raise left.pop(0)
        return False

    monkeypatch.setattr(led_cluster, "ensure_indexes", ensure_indexes)
    monkeypatch.setattr(store_outages, "RETRY_S", 0.0)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"{", "collection/c: stored record is unreadable"),
        (b'{"version":9}', "collection/c: record version 9; this program knows version 1"),
    ],
)
async def test_a_collection_record_that_cannot_be_read_ends_the_start(
    tmp_path: Path, record: bytes, text: str
) -> None:
    async with await SqliteMetaStore.open(DataFolder(tmp_path).metadata) as store:
        await store.write({collection_key("c"): record, COLLECTION_ID_KEY: encode_number(101)})
    with pytest.raises(CannotStart, match=text):
        await term(tmp_path)


async def test_a_leader_record_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    async with await SqliteMetaStore.open(DataFolder(tmp_path).metadata) as store:
        await store.write({LEADER_KEY: b"x"})
    with pytest.raises(CannotStart, match="leader: stored value is not a number"):
        await term(tmp_path)


async def test_a_coordinator_that_a_newer_one_replaced_does_not_take_the_lead_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, [Deposed("a newer coordinator leads")])
    with pytest.raises(CannotStart, match="a newer coordinator leads"):
        await term(tmp_path)


async def test_an_outage_after_taking_the_lead_is_waited_for_within_one_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, [MetaError("the disk is full")] * 3)
    assert await term(tmp_path) == 1


async def test_an_outage_right_after_a_take_over_is_waited_for(tmp_path: Path) -> None:
    """This process has stood by for days, and its store answers again in a moment."""
    outages = [MetaError("no answer from etcd for 6 s")]

    class AwayOnce(ShakyStore):
        async def get(self, key: str) -> MetaEntry | None:
            if key == CLUSTER_KEY and outages:
                raise outages.pop()
            return await super().get(key)

    store = AwayOnce(MemoryMetaStore())
    await found_cluster(store.inner, pchannel_names("by-dev", 16))
    led = await lead(store)
    lease = LeaderLease(led, 5.0, anyio.current_time())
    with bind(LISTEN) as bound, candidate_of(DataFolder(tmp_path), LISTEN) as candidates:
        taken = led_cluster.Lead(led, lease, candidates, candidates.process)
        async with led_cluster.led_cluster(
            Settings(listen=LISTEN), DataFolder(tmp_path), bound, {}, taken
        ) as cluster:
            assert cluster.store is led
