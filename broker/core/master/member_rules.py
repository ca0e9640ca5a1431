"""What a tenant and a proxy may look like."""

import re

from broker.model.failure import invalid_argument
from broker.model.master.tenancy import ProxyMember, Tenant

MEMBERS_MAX = 1024
"""Tenants, and proxies."""
MEMBERS_BYTES_MAX = 3 * 1024 * 1024
"""Of the records of all tenants, and of all proxies: a list fits the 4 MiB that clients take."""
CHANNELS_MAX = 1024
QUERY_NODES_MAX = 1_000_000
ID_MAX = 2**63 - 1
PORT_MAX = 65_535

_CHANNEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_HOST = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:\]-]{0,252}")


def check_tenant(tenant: Tenant) -> None:
    """Raise Refused(INVALID_ARGUMENT) for a bad one."""
    check_member_id("tenant", tenant.id)
    if not 0 <= tenant.num_query_nodes <= QUERY_NODES_MAX:
        raise invalid_argument(
            f"tenant {tenant.id} has {tenant.num_query_nodes} query nodes; it must have 0 to"
            f" {QUERY_NODES_MAX}"
        )
    _check_channels(f"tenant {tenant.id}", tenant.insert_channel_names)
    if tenant.query_channel_name:
        _check_channels(f"tenant {tenant.id}", (tenant.query_channel_name,))


def check_proxy(proxy: ProxyMember) -> None:
    """Raise Refused(INVALID_ARGUMENT) for a bad one."""
    check_member_id("proxy", proxy.id)
    if not _HOST.fullmatch(proxy.ip):
        raise invalid_argument(
            f"proxy {proxy.id} has the address {proxy.ip[:80]!r}; give the IP or the name of a host"
        )
    if not 1 <= proxy.port <= PORT_MAX:
        cause = f"proxy {proxy.id} has the port {proxy.port}; it must be 1 to {PORT_MAX}"
        raise invalid_argument(cause)
    _check_channels(f"proxy {proxy.id}", proxy.result_channel_names)


def check_member_id(what: str, member_id: int) -> None:
    """Raise Refused(INVALID_ARGUMENT) unless it is a positive signed 64-bit number."""
    if not 1 <= member_id <= ID_MAX:
        raise invalid_argument(f"{what} ID {member_id} must be 1 to {ID_MAX}")


def _check_channels(whose: str, names: tuple[str, ...]) -> None:
    if len(names) > CHANNELS_MAX:
        cause = f"{whose} has {len(names)} channels; it must have at most {CHANNELS_MAX}"
        raise invalid_argument(cause)
    for name in names:
        if not _CHANNEL.fullmatch(name):
            raise invalid_argument(
                f"{whose} has the channel {name[:80]!r}: a name must start with a letter, digit or"
                " '_', contain only these, '-' and '.', and have at most 255 characters"
            )
