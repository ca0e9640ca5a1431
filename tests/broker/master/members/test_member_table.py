"""Tenants and proxies over a store that fails, and the proxies that ticks wait for."""

from collections.abc import Awaitable, Callable

import pytest

from actors import ONE_FOR_ONE, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.json_records import UnreadableRecord
from broker.core.master import member_rules
from broker.core.master.member_rules import MEMBERS_MAX
from broker.master.member_records import (
    PROXY_PREFIX,
    TENANT_PREFIX,
    decode_proxy,
    decode_tenant,
    proxy_key,
    tenant_key,
)
from broker.master.members.messages import (
    DeleteProxy,
    DeleteTenant,
    ListProxies,
    ListTenants,
    PutProxy,
    PutTenant,
)
from broker.master.time_ticks.tick_records import encode_settings, settings_key
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.master.tenancy import ProxyMember, Tenant
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickSettings
from broker.ports.meta import MetaStore
from tests.broker.coordinator.fakes import LosingStore, ShakyStore

PATH = "/root/master/members"
PROXY = ProxyMember(3, "10.0.0.1", 19_530)


def run_master(store: MetaStore, clock: VirtualClock) -> System:
    root = SupervisorSpec("root", ONE_FOR_ONE, (master_tree(MasterParts(store), "/root"),))
    return System(root, clock=clock)


def seeded(test: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(VirtualClock())

    run_seeded(1, main)


def test_a_change_that_cannot_be_stored_does_not_count() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_master(store, clock) as system:
            members = system.find(PATH)
            await members.ask(PutProxy(PROXY), deadline_s=5.0)
            await members.ask(PutTenant(Tenant(1)), deadline_s=5.0)
            store.broken = True
            for change in (
                PutProxy(ProxyMember(4, "10.0.0.2", 1)),
                PutTenant(Tenant(1, 9)),
                DeleteProxy(3),
                DeleteTenant(1),
            ):
                with pytest.raises(Refused, match="disk full; try again") as caught:
                    await members.ask(change, deadline_s=5.0)
                assert caught.value.refusal.code is StreamingCode.INNER
            assert await members.ask(ListProxies(), deadline_s=5.0) == (PROXY,)
            assert await members.ask(ListTenants(), deadline_s=5.0) == (Tenant(1),)

    seeded(scenario)


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("applies", [True, False])
def test_after_a_lost_answer_the_table_has_what_the_store_has(applies: bool, breaks: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore(), clock)
        store.applies, store.breaks = applies, breaks
        async with run_master(store, clock) as system:
            members = system.find(PATH)
            await members.ask(PutProxy(PROXY), deadline_s=5.0)
            await members.ask(PutTenant(Tenant(1)), deadline_s=5.0)
            for change in (
                PutProxy(ProxyMember(4, "10.0.0.2", 1)),
                PutTenant(Tenant(1, 9)),
                PutTenant(Tenant(2)),
                DeleteProxy(3),
                DeleteTenant(1),
            ):
                is_tenant = isinstance(change, PutTenant | DeleteTenant)
                store.loses = TENANT_PREFIX if is_tenant else PROXY_PREFIX
                before = await stored(store.inner)
                with pytest.raises(Refused, match="repeat the change if it is not there") as caught:
                    await members.ask(change, deadline_s=5.0)
                assert caught.value.refusal.code is StreamingCode.UNKNOWN
                if breaks:
                    with pytest.raises(Refused, match="disk full; try again") as caught:
                        await members.ask(ListTenants(), deadline_s=5.0)
                    assert caught.value.refusal.code is StreamingCode.INNER
                store.broken = False
                assert (await stored(store.inner) != before) is applies
                assert await listed(system) == await stored(store.inner)
                if isinstance(change, PutTenant | PutProxy):
                    await members.ask(change, deadline_s=5.0)
                elif applies:
                    with pytest.raises(Refused, match="the master knows no"):
                        await members.ask(change, deadline_s=5.0)
                else:
                    await members.ask(change, deadline_s=5.0)
            assert await listed(system) == ((Tenant(2),), (ProxyMember(4, "10.0.0.2", 1),))

    seeded(scenario)


async def listed(system: System) -> tuple[tuple[Tenant, ...], tuple[ProxyMember, ...]]:
    members = system.find(PATH)
    return (
        await members.ask(ListTenants(), deadline_s=5.0),
        await members.ask(ListProxies(), deadline_s=5.0),
    )


async def stored(store: MetaStore) -> tuple[tuple[Tenant, ...], tuple[ProxyMember, ...]]:
    tenants = await store.list(TENANT_PREFIX, limit=10)
    proxies = await store.list(PROXY_PREFIX, limit=10)
    return (
        tuple([decode_tenant(key, it.value) for key, it in tenants]),
        tuple([decode_proxy(key, it.value) for key, it in proxies]),
    )


def test_a_restarted_table_has_all_more_than_one_list_of_the_store() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_master(MemoryMetaStore(), clock) as system:
            for number in range(1, MEMBERS_MAX + 1):
                await system.find(PATH).ask(PutTenant(Tenant(number)), deadline_s=5.0)
            with pytest.raises(Refused, match="there are 1024 tenants already"):
                await system.find(PATH).ask(PutTenant(Tenant(5_000)), deadline_s=5.0)
            await system.find(PATH).ask(PutTenant(Tenant(7, 2)), deadline_s=5.0)
            system.kill(PATH)
            await clock.sleep(1.0)
            found = await system.find(PATH).ask(ListTenants(), deadline_s=5.0)
            assert len(found) == MEMBERS_MAX
            assert found[6] == Tenant(7, 2)

    seeded(scenario)


def test_all_tenants_and_all_proxies_fit_one_answer() -> None:
    channels = tuple(f"{number:0255}" for number in range(1024))

    async def scenario(clock: VirtualClock) -> None:
        async with run_master(MemoryMetaStore(), clock) as system:
            for number in range(1, 12):
                await system.find(PATH).ask(PutTenant(Tenant(number, 1, channels)), deadline_s=5.0)
                proxy = ProxyMember(number, "10.0.0.1", 1, channels)
                await system.find(PATH).ask(PutProxy(proxy), deadline_s=5.0)
            for change in (
                PutTenant(Tenant(12, 1, channels)),
                PutProxy(ProxyMember(12, "10.0.0.1", 1, channels)),
            ):
                with pytest.raises(Refused, match="the limit is 3,145,728") as caught:
                    await system.find(PATH).ask(change, deadline_s=5.0)
                assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
            await system.find(PATH).ask(PutTenant(Tenant(11, 2, channels)), deadline_s=5.0)
            assert len(await system.find(PATH).ask(ListTenants(), deadline_s=5.0)) == 11
            assert len(await system.find(PATH).ask(ListProxies(), deadline_s=5.0)) == 11

    seeded(scenario)


def test_a_proxy_that_ticks_wait_for_cannot_be_deleted() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        ticks = TickSettings((3,), ("c",), TickPolicy.SOFT, 500)
        await store.write({settings_key(TickOrigin.PROXIES): encode_settings(ticks)})
        async with run_master(store, clock) as system:
            await system.find(PATH).ask(PutProxy(PROXY), deadline_s=5.0)
            with pytest.raises(Refused, match="wait for proxy 3") as caught:
                await system.find(PATH).ask(DeleteProxy(3), deadline_s=5.0)
            assert caught.value.refusal.code is StreamingCode.RESOURCE_ACQUIRED
            assert await store.get(proxy_key(3)) is not None

    seeded(scenario)


def test_a_damaged_record_is_named() -> None:
    with pytest.raises(UnreadableRecord, match=proxy_key(3)):
        decode_proxy(proxy_key(3), b'{"version": 1, "id": 3}')
    with pytest.raises(UnreadableRecord, match=tenant_key(3)):
        decode_tenant(tenant_key(3), b"{}")


def test_the_keys_hold_numbers_only() -> None:
    assert (tenant_key(7), proxy_key(8)) == ("tenant/7", "proxy/8")
    assert member_rules.ID_MAX == 2**63 - 1
