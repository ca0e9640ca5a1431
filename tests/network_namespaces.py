"""Two network namespaces with a wire between them: two hosts, as processes see it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SERVER_IP, CLIENT_IP = "10.231.77.1", "10.231.77.2"
NOBODY_IP = "10.231.77.9"
"""In the network of both, and of no host: nothing answers."""


class NoNamespaces(Exception):
    """This machine lets us make none; the text says why."""


@dataclass(frozen=True)
class Host:
    """One namespace. `inside`: the words that run a command there; the pid stays the same."""

    name: str
    ip: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def add_address(self, address: str) -> None:
        _ip("-n", self.name, "address", "add", address, "dev", "wire", "nodad")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """The host of a server and that of a client. Raises NoNamespaces."""
    server, client = (Host(f"tm{os.getpid()}{end}", ip) for end, ip in _ENDS)
    try:
        for host in (server, client):
            _ip("netns", "add", host.name)
        ends = ("wire", "netns", server.name, "type", "veth", "peer", "wire", "netns", client.name)
        _ip("link", "add", *ends)
        for host in (server, client):
            # Without an IPv6 link-local address: it is tentative for a second after the start.
            _ip("-n", host.name, "link", "set", "wire", "addrgenmode", "none")
            _ip("-n", host.name, "address", "add", f"{host.ip}/24", "dev", "wire")
            for link in ("lo", "wire"):
                _ip("-n", host.name, "link", "set", link, "up")
        yield server, client
    finally:
        for host in (server, client):
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)


_ENDS = (("s", SERVER_IP), ("c", CLIENT_IP))


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], capture_output=True, check=True, text=True)
    except FileNotFoundError as error:
        raise NoNamespaces("there is no `ip` command") from error
    except subprocess.CalledProcessError as error:
        raise NoNamespaces(f"`ip {' '.join(words)}`: {error.stderr.strip()}") from error
