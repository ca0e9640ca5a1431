"""Two network namespaces with a wire between them: two hosts, as processes see it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hosts.namespaces import Host, delete_namespace, ip_command

SERVER_IP, CLIENT_IP = "10.231.77.1", "10.231.77.2"
NOBODY_IP = "10.231.77.9"
"""In the network of both, and of no host: nothing answers."""


@dataclass(frozen=True, slots=True)
class WiredHost(Host):
    """A host at one end of the wire."""

    def add_address(self, address: str) -> None:
        ip_command("-n", self.name, "address", "add", address, "dev", "wire", "nodad")


@contextmanager
def two_hosts() -> Iterator[tuple[WiredHost, WiredHost]]:
    """The host of a server and that of a client. Raises NoNamespaces."""
    server, client = (WiredHost(f"tm{os.getpid()}{end}", ip) for end, ip in _ENDS)
    try:
        for host in (server, client):
            ip_command("netns", "add", host.name)
        ends = ("wire", "netns", server.name, "type", "veth", "peer", "wire", "netns", client.name)
        ip_command("link", "add", *ends)
        for host in (server, client):
            # Without an IPv6 link-local address: it is tentative for a second after the start.
            ip_command("-n", host.name, "link", "set", "wire", "addrgenmode", "none")
            ip_command("-n", host.name, "address", "add", f"{host.ip}/24", "dev", "wire")
            for link in ("lo", "wire"):
                ip_command("-n", host.name, "link", "set", link, "up")
        yield server, client
    finally:
        for host in (server, client):
            delete_namespace(host.name)


_ENDS = (("s", SERVER_IP), ("c", CLIENT_IP))
