"""Keys and values of tenants and proxies."""

from typing import Any

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.model.master.tenancy import ProxyMember, Tenant

TENANT_PREFIX = "tenant/"
PROXY_PREFIX = "proxy/"


def tenant_key(tenant_id: int) -> str:
    """The key of a tenant."""
    return f"{TENANT_PREFIX}{tenant_id}"


def proxy_key(proxy_id: int) -> str:
    """The key of a proxy."""
    return f"{PROXY_PREFIX}{proxy_id}"


def encode_tenant(tenant: Tenant) -> bytes:
    """The record of a tenant."""
    return encode_fields(
        {
            "id": tenant.id,
            "num_query_nodes": tenant.num_query_nodes,
            "insert_channel_names": tenant.insert_channel_names,
            "query_channel_name": tenant.query_channel_name,
        }
    )


def decode_tenant(key: str, value: bytes) -> Tenant:
    """The tenant; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> Tenant:
        return Tenant(
            id=int(fields["id"]),
            num_query_nodes=int(fields["num_query_nodes"]),
            insert_channel_names=tuple(str(it) for it in fields["insert_channel_names"]),
            query_channel_name=str(fields["query_channel_name"]),
        )

    return decode_fields(key, value, parse)


def encode_proxy(proxy: ProxyMember) -> bytes:
    """The record of a proxy."""
    return encode_fields(
        {
            "id": proxy.id,
            "ip": proxy.ip,
            "port": proxy.port,
            "result_channel_names": proxy.result_channel_names,
        }
    )


def decode_proxy(key: str, value: bytes) -> ProxyMember:
    """The proxy; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> ProxyMember:
        return ProxyMember(
            id=int(fields["id"]),
            ip=str(fields["ip"]),
            port=int(fields["port"]),
            result_channel_names=tuple(str(it) for it in fields["result_channel_names"]),
        )

    return decode_fields(key, value, parse)
