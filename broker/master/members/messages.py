"""The messages of the MemberTable. Changes are durable when answered.

Refused: INVALID_ARGUMENT for a bad value, or too many; CHANNEL_NOT_EXIST when no member has the id;
INNER when the store failed: try again; UNKNOWN when its answer was lost: list the members, and
repeat the change if it is not there.
"""

from dataclasses import dataclass

from actors import Request
from broker.model.master.tenancy import ProxyMember, Tenant


@dataclass(frozen=True, slots=True)
class PutTenant(Request[None]):
    """Add the tenant, or replace the one of this id."""

    tenant: Tenant


@dataclass(frozen=True, slots=True)
class DeleteTenant(Request[None]):
    """Remove a tenant."""

    tenant_id: int


@dataclass(frozen=True, slots=True)
class ListTenants(Request[tuple[Tenant, ...]]):
    """All tenants, by id."""


@dataclass(frozen=True, slots=True)
class PutProxy(Request[None]):
    """Add the proxy, or replace the one of this id."""

    proxy: ProxyMember


@dataclass(frozen=True, slots=True)
class DeleteProxy(Request[None]):
    """Remove a proxy. RESOURCE_ACQUIRED while the time ticks of the proxies wait for it."""

    proxy_id: int


@dataclass(frozen=True, slots=True)
class ListProxies(Request[tuple[ProxyMember, ...]]):
    """All proxies, by id."""


MemberMessage = PutTenant | DeleteTenant | ListTenants | PutProxy | DeleteProxy | ListProxies
