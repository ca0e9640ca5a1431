"""Tenants, proxies and component states through a real broker."""

from pathlib import Path

import pytest

from broker.client import connect
from broker.client.errors import InvalidArgument, UnknownMember
from broker.core.master.component_health import Component, ComponentCode
from broker.model.master.tenancy import ProxyMember, Tenant
from schemas.generated.tidemark import v1
from tests.local_broker import local_broker

TENANT = Tenant(7, 2, ("insert-0", "insert-1"), "query-0")
PROXY = ProxyMember(3, "10.0.0.1", 19_530, ("result-3",))


async def test_tenants_and_proxies_are_there_after_a_restart(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.master.add_tenant(Tenant(11))
        await log.master.add_tenant(TENANT)
        await log.master.add_proxy(ProxyMember(3, "10.0.0.9", 1))
        await log.master.add_proxy(PROXY)  # it listens elsewhere now
        await log.master.add_proxy(ProxyMember(1, "proxy.example.org", 2))
        await log.master.delete_proxy(1)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        assert await log.master.list_tenants() == [TENANT, Tenant(11)]
        assert await log.master.list_proxies() == [PROXY]
        await log.master.delete_tenant(11)
        assert await log.master.list_tenants() == [TENANT]


async def test_an_unknown_or_bad_one_is_refused_by_value(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        with pytest.raises(UnknownMember, match="the master knows no proxy 5"):
            await log.master.delete_proxy(5)
        with pytest.raises(UnknownMember, match="the master knows no tenant 5"):
            await log.master.delete_tenant(5)
        with pytest.raises(InvalidArgument, match="proxy ID 0 must be 1 to"):
            await log.master.add_proxy(ProxyMember(0, "10.0.0.1", 1))
        with pytest.raises(InvalidArgument, match=r"the channel '../../etc'"):
            await log.master.add_tenant(Tenant(1, 0, ("../../etc",)))
        with pytest.raises(InvalidArgument, match="proxy 4 has no address"):
            await log.master._calls.ask("AddProxy", v1.ProxyMeta(id=4), v1.AddProxyResponse)
        assert await log.master.list_proxies() == []


async def test_component_states_are_those_of_the_actors(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        whole, parts = await log.master.get_component_states()
        assert whole == Component("master", ComponentCode.HEALTHY)
        assert {it.code for it in parts} == {ComponentCode.HEALTHY}
        assert {"timestamp_oracle", "id_allocator", "meta_table", "dd_scheduler"} <= {
            it.name for it in parts
        }
