"""Tenants, proxies and component states, as the master knows them."""

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import ChannelNotExist, UnknownMember
from broker.core.master.component_health import Component, ComponentCode
from broker.model.master.tenancy import ProxyMember, Tenant
from schemas.generated.tidemark import v1


class MemberCalls:
    """Changes are durable when answered, and may be repeated."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls

    async def add_tenant(self, tenant: Tenant) -> None:
        """Add a tenant, or replace the one of this id. InvalidArgument for a bad value."""
        request = v1.TenantMeta(
            id=tenant.id,
            num_query_nodes=tenant.num_query_nodes,
            insert_channel_names=list(tenant.insert_channel_names),
            query_channel_name=tenant.query_channel_name,
        )
        await self._calls.ask("AddTenant", request, v1.AddTenantResponse)

    async def delete_tenant(self, tenant_id: int) -> None:
        """Remove a tenant. UnknownMember when there is none."""
        request = v1.DeleteTenantRequest(tenant_id=tenant_id)
        try:
            await self._calls.ask("DeleteTenant", request, v1.DeleteTenantResponse)
        except ChannelNotExist as error:
            raise UnknownMember(error.cause, error.code) from None

    async def list_tenants(self) -> list[Tenant]:
        """All tenants, by id."""
        request = v1.ListTenantsRequest()
        answer = await self._calls.ask("ListTenants", request, v1.ListTenantsResponse)
        return [
            Tenant(it.id, it.num_query_nodes, tuple(it.insert_channel_names), it.query_channel_name)
            for it in answer.tenants
        ]

    async def add_proxy(self, proxy: ProxyMember) -> None:
        """Add a proxy, or replace the one of this id. InvalidArgument for a bad value."""
        request = v1.ProxyMeta(
            id=proxy.id,
            address=v1.ProxyAddress(ip=proxy.ip, port=proxy.port),
            result_channel_names=list(proxy.result_channel_names),
        )
        await self._calls.ask("AddProxy", request, v1.AddProxyResponse)

    async def delete_proxy(self, proxy_id: int) -> None:
        """Remove a proxy. UnknownMember when there is none.

        ResourceAcquired while the time ticks of the proxies wait for it: set them without it first.
        """
        request = v1.DeleteProxyRequest(proxy_id=proxy_id)
        try:
            await self._calls.ask("DeleteProxy", request, v1.DeleteProxyResponse)
        except ChannelNotExist as error:
            raise UnknownMember(error.cause, error.code) from None

    async def list_proxies(self) -> list[ProxyMember]:
        """All proxies, by id."""
        request = v1.ListProxiesRequest()
        answer = await self._calls.ask("ListProxies", request, v1.ListProxiesResponse)
        return [_proxy(it) for it in answer.proxies]

    async def get_component_states(self) -> tuple[Component, list[Component]]:
        """The state of the master, and of each of its parts."""
        request = v1.GetComponentStatesRequest()
        answer = await self._calls.ask("GetComponentStates", request, v1.GetComponentStatesResponse)
        whole = answer.state or v1.ComponentState(name="master")
        return _component(whole), [_component(it) for it in answer.subcomponents]


def _proxy(it: v1.ProxyMeta) -> ProxyMember:
    address = it.address or v1.ProxyAddress()
    return ProxyMember(it.id, address.ip, address.port, tuple(it.result_channel_names))


def _component(it: v1.ComponentState) -> Component:
    return Component(it.name, ComponentCode(int(it.state)), it.cause)
