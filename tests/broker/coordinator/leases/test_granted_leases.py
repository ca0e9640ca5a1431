"""The record of the longest lease that was granted: over coordinators with other settings."""

from broker.coordinator.leases.granted_leases import GrantedLeases
from broker.coordinator.records import LEASE_KEY
from broker.meta.memory_store import MemoryMetaStore


async def recorded(store: MemoryMetaStore) -> bytes | None:
    entry = await store.get(LEASE_KEY)
    return None if entry is None else entry.value


async def test_the_first_coordinator_trusts_its_own_lease_and_records_it_before_it_grants() -> None:
    store = MemoryMetaStore()
    granted = GrantedLeases(store, 5.0)
    await granted.inherit(100.0)
    assert await recorded(store) == b"5000"
    assert granted.until_s(101.0) == 106.0


async def test_a_longer_lease_is_recorded_at_once_and_a_shorter_one_when_the_longer_is_over() -> (
    None
):
    store = MemoryMetaStore()
    for lease_s in (5.0, 20.0):
        await GrantedLeases(store, lease_s).inherit(0.0)
    assert await recorded(store) == b"20000"
    shorter = GrantedLeases(store, 2.0)
    await shorter.inherit(100.0)
    assert shorter.until_s(101.0) == 120.0
    await shorter.shorten(119.9)
    assert await recorded(store) == b"20000", "should it die now, the next one waits as long"
    await shorter.shorten(120.0)
    assert await recorded(store) == b"2000"
    assert shorter.until_s(120.0) == 122.0
