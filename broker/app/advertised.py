"""Decides the address that clients are given for this process; see the setting `advertise`."""

import ipaddress
import socket
from collections.abc import Callable, Iterable

import psutil
import structlog

from broker.addresses import joined_address, split_advertised
from broker.app.listening import address_of
from broker.app.process_errors import CannotStart
from broker.process_settings import Settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

log = structlog.get_logger("tidemark")


def outside_addresses() -> list[str]:
    """The addresses of this machine's network interfaces that are up."""
    up = {name for name, about in psutil.net_if_stats().items() if about.isup}
    return [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if name in up and entry.family in (socket.AF_INET, socket.AF_INET6)
    ]


def with_advertised(
    settings: Settings,
    bound: socket.socket,
    machine: Callable[[], Iterable[str]] = outside_addresses,
) -> Settings:
    """The settings with `advertise` as HOST:PORT.

    It is what was set, else the address listened on. For a wildcard, which no client can connect
    to, it is the one address that other machines may reach; logs which. `machine` lists the
    addresses of this machine. Raises CannotStart when there is none, or several.
    """
    port = int(bound.getsockname()[1])
    if settings.advertise:
        host, own_port = split_advertised(settings.advertise)
        return _advertising(settings, joined_address(host, own_port or port))
    if not is_wildcard(bound):
        return _advertising(settings, address_of(bound))
    reachable = _reachable(machine(), bound.family)
    if len(reachable) != 1:
        found = ", ".join(reachable) or "none"
        raise CannotStart(
            f"{settings.listen} listens on every address of this machine, so clients must be given"
            " one of them; pass --advertise HOST[:PORT], the address at which they reach this"
            f" process (addresses of this machine: {found})"
        )
    address = joined_address(reachable[0], port)
    log.warning(
        "clients are given the only outside address of this machine; --advertise sets another",
        advertise=address,
        listen=settings.listen,
    )
    return _advertising(settings, address)


def is_wildcard(bound: socket.socket) -> bool:
    """Whether the socket listens on every address."""
    return _plain(bound.getsockname()[0]).is_unspecified


def local_host(bound_host: str) -> str:
    """The host at which processes of this machine reach what listens on `bound_host`."""
    try:
        address = _plain(bound_host)
    except ValueError:
        return bound_host  # a name
    if not address.is_unspecified:
        return bound_host
    return "127.0.0.1" if address.version == 4 else "::1"


def _reachable(addresses: Iterable[str], family: int) -> list[str]:
    """Those that another machine may reach, over a socket of this family, in a fixed order."""
    plain = {_plain(it) for it in addresses}
    return sorted(
        str(it)
        for it in plain
        # An IPv6 socket takes IPv4 connections as well.
        if (it.version == 4 or family == socket.AF_INET6)
        and not (it.is_loopback or it.is_link_local or it.is_unspecified)
    )


def _plain(address: str) -> Address:
    """Without a zone; an IPv4 address written as IPv6 as what it is."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _advertising(settings: Settings, address: str) -> Settings:
    return settings.model_copy(update={"advertise": address})
