"""Tenants and proxies, as the master's meta table keeps them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: how many query nodes it has, and the channels of its data and its queries."""

    id: int
    num_query_nodes: int = 0
    insert_channel_names: tuple[str, ...] = ()
    query_channel_name: str = ""


@dataclass(frozen=True, slots=True)
class ProxyMember:
    """A proxy: where it listens, and the channels on which it gets results."""

    id: int
    ip: str
    port: int
    result_channel_names: tuple[str, ...] = ()
