"""tidemark.v1.Master: tenants and proxies."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.master.allocation_service import SERVICE
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.master.members.messages import (
    DeleteProxy,
    DeleteTenant,
    ListProxies,
    ListTenants,
    PutProxy,
    PutTenant,
)
from broker.model.failure import invalid_argument
from broker.model.master.tenancy import ProxyMember, Tenant
from schemas.generated.tidemark import v1


class MembersService:
    """Add, delete and list tenants and proxies; see `messages` of the MemberTable for refusals."""

    def __init__(self, middleware: Middleware, members: Proxy) -> None:
        self._middleware = middleware
        self._members = members

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "AddTenant": unary(v1.TenantMeta, self.add_tenant),
            SERVICE + "DeleteTenant": unary(v1.DeleteTenantRequest, self.delete_tenant),
            SERVICE + "ListTenants": unary(v1.ListTenantsRequest, self.list_tenants),
            SERVICE + "AddProxy": unary(v1.ProxyMeta, self.add_proxy),
            SERVICE + "DeleteProxy": unary(v1.DeleteProxyRequest, self.delete_proxy),
            SERVICE + "ListProxies": unary(v1.ListProxiesRequest, self.list_proxies),
        }

    async def add_tenant(self, request: v1.TenantMeta) -> v1.AddTenantResponse:
        """Add or replace a tenant."""
        tenant = Tenant(
            request.id,
            request.num_query_nodes,
            tuple(request.insert_channel_names),
            request.query_channel_name,
        )
        await self._members.ask(PutTenant(tenant))
        return v1.AddTenantResponse()

    async def delete_tenant(self, request: v1.DeleteTenantRequest) -> v1.DeleteTenantResponse:
        """Remove a tenant."""
        await self._members.ask(DeleteTenant(request.tenant_id))
        return v1.DeleteTenantResponse()

    async def list_tenants(self, _: v1.ListTenantsRequest) -> v1.ListTenantsResponse:
        """All tenants."""
        tenants = [
            v1.TenantMeta(
                id=it.id,
                num_query_nodes=it.num_query_nodes,
                insert_channel_names=list(it.insert_channel_names),
                query_channel_name=it.query_channel_name,
            )
            for it in await self._members.ask(ListTenants())
        ]
        return v1.ListTenantsResponse(tenants=tenants)

    async def add_proxy(self, request: v1.ProxyMeta) -> v1.AddProxyResponse:
        """Add or replace a proxy."""
        address = request.address
        if address is None:
            raise invalid_argument(f"proxy {request.id} has no address; give its IP and its port")
        channels = tuple(request.result_channel_names)
        proxy = ProxyMember(request.id, address.ip, address.port, channels)
        await self._members.ask(PutProxy(proxy))
        return v1.AddProxyResponse()

    async def delete_proxy(self, request: v1.DeleteProxyRequest) -> v1.DeleteProxyResponse:
        """Remove a proxy."""
        await self._members.ask(DeleteProxy(request.proxy_id))
        return v1.DeleteProxyResponse()

    async def list_proxies(self, _: v1.ListProxiesRequest) -> v1.ListProxiesResponse:
        """All proxies."""
        proxies = [
            v1.ProxyMeta(
                id=it.id,
                address=v1.ProxyAddress(ip=it.ip, port=it.port),
                result_channel_names=list(it.result_channel_names),
            )
            for it in await self._members.ask(ListProxies())
        ]
        return v1.ListProxiesResponse(proxies=proxies)
