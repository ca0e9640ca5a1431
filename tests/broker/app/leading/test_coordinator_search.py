"""Coordinators as a node finds them in etcd: the leader first, and those that stand by."""

from pathlib import Path

import pytest

from broker.app.leading.coordinator_search import CoordinatorSearch, known_coordinators
from broker.app.stores.etcd_metadata import COORDINATOR
from broker.coordinator.leases.leader_records import ENDED_KEY, LEADER_KEY, ended_puts, leader_puts
from broker.coordinator.records import encode_number
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.ports.leader_check import Candidate
from broker.ports.meta import MetaError
from broker.process_settings import GivenSettings
from tests.local_etcd import EtcdServer
from tests.roles_processes import until


async def lead_as(store: EtcdMetaStore, term: int, address: str) -> None:
    puts = leader_puts(term, Candidate(f"x/{term}", address), 5.0)
    await store.write({LEADER_KEY: encode_number(term), **puts}, deletes=[ENDED_KEY])


async def test_the_leader_is_first_and_each_is_there_once(store: EtcdMetaStore) -> None:
    search = CoordinatorSearch(store)
    await search.look()
    assert search.known() == ()
    async with (
        store.announced(f"{COORDINATOR}x/1", b"a:1"),
        store.announced(f"{COORDINATOR}y/2", b"b:1"),
        store.announced("other/3", b"c:1"),
    ):
        await search.look()
        assert search.known() == ("a:1", "b:1"), "nobody has led yet"
        await lead_as(store, 1, "b:1")
        await search.look()
        assert search.known() == ("b:1", "a:1")
    await search.look()
    assert search.known() == ("b:1",), "the record stays, for etcd was away"
    await store.write(ended_puts(1))
    await search.look()
    assert search.known() == ()


async def test_addresses_that_were_given_are_the_only_ones(store: EtcdMetaStore) -> None:
    await lead_as(store, 1, "b:1")
    given = GivenSettings(coordinator="c:1,d:1")
    async with known_coordinators(given, store) as known:
        assert known() == ("c:1", "d:1")


async def test_changes_are_followed_and_outlive_an_outage(tmp_path: Path) -> None:
    with EtcdServer(tmp_path) as server:
        place = etcd_place(f"etcd://{server.address}/outage")
        async with (
            await EtcdMetaStore.open(place, owner="me", call_s=30) as store,
            known_coordinators(GivenSettings(), store) as known,
        ):
            assert known() == ()
            await lead_as(store, 1, "b:1")

            async def followed() -> bool:
                return tuple(known()) == ("b:1",)

            await until(followed)
            server.kill()
            store._members.call_s = 0.5  # only now: no answer comes any more
            search = CoordinatorSearch(store)
            with pytest.raises(MetaError, match="no answer from"):
                await search.look()
            assert await followed()
