"""Hosts as network namespaces, and the faults of the network between them. Needs root.

This process moves into a namespace of its own first, so that the machine's network stays as it is.
"""

import ctypes
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import IO, Final

from hosts.namespaces import Host, NoNamespaces, delete_namespace, ip_command
from hosts.wires import Pair, Wires

ROOT = Path(__file__).parents[4]
SUBNET: Final = "10.231.80"
HERE: Final = f"{SUBNET}.254"
"""The address of this process."""
NETWORK_NAMESPACE: Final = 0x40000000
TUNSETIFF: Final = 0x400454CA
TUN_WITHOUT_HEADER: Final = 0x1001
MTU: Final = "9000"
"""Large packets, since each takes a turn of Python."""


class HostNetwork:
    """Hosts by name. Each fault has a key, and holds until it is taken back by that."""

    def __init__(self, hosts: Mapping[str, Host], switch: "subprocess.Popen[str]") -> None:
        self.hosts = hosts
        self._switch = switch
        self._cut: dict[str, Collection[Pair]] = {}
        self._delay_s: dict[str, tuple[str, float]] = {}
        self._loss: dict[str, tuple[str, float]] = {}

    def cut(self, key: str, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """What the first ones send does not reach the others; the other way all is as before."""
        pairs = product(senders, receivers)
        self._cut[key] = [(self._address(a), self._address(b)) for a, b in pairs if a != b]
        self._tell()

    def delay(self, key: str, host: str, by_s: float) -> None:
        """All that a host sends and receives is late."""
        self._delay_s[key] = (self._address(host), by_s)
        self._tell()

    def lose(self, key: str, host: str, share: float) -> None:
        """A share of what a host sends and receives is lost."""
        self._loss[key] = (self._address(host), share)
        self._tell()

    def heal(self, key: str) -> None:
        """Take a fault back."""
        for each in (self._cut, self._delay_s, self._loss):
            each.pop(key, None)
        self._tell()

    def _address(self, host: str) -> str:
        return self.hosts[host].ip

    def _tell(self) -> None:
        cut = {pair for pairs in self._cut.values() for pair in pairs}
        wires = Wires(cut, dict(self._delay_s.values()), dict(self._loss.values()))
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(f"{wires.encode()}\n")
        self._switch.stdin.flush()
        if not self._switch.stdout.readline():
            raise AssertionError("the switch has ended")


def may_make_namespaces() -> str:
    """Why this process cannot have hosts of its own; "" when it can."""
    if os.geteuid():
        return "only root makes network namespaces"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there are no TUN devices"
    probe = f"tmprobe{os.getpid()}"
    try:
        ip_command("netns", "add", probe)
    except NoNamespaces as error:
        return str(error)
    delete_namespace(probe)
    return ""


@contextmanager
def host_network(names: Sequence[str], seed: int) -> Iterator[HostNetwork]:
    """Hosts with these names, which see each other and us. Raises NoNamespaces."""
    if os.geteuid():
        raise NoNamespaces("only root makes network namespaces")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NETWORK_NAMESPACE):
        raise NoNamespaces(f"cannot leave the network of the machine: {os.strerror(_errno())}")
    hosts = {
        name: Host(f"tm{os.getpid()}{name}", f"{SUBNET}.{number}")
        for number, name in enumerate(names, 1)
    }
    with ExitStack() as stack:
        ip_command("link", "set", "lo", "up")
        devices = {HERE: stack.enter_context(_device("tm-here"))}
        _bring_up("tm-here", HERE)
        for number, host in enumerate(hosts.values(), 1):
            ip_command("netns", "add", host.name)
            stack.callback(delete_namespace, host.name)
            devices[host.ip] = stack.enter_context(_device(f"tm-{number}"))
            ip_command("link", "set", f"tm-{number}", "netns", host.name)
            _bring_up(f"tm-{number}", host.ip, "-n", host.name)
            ip_command("-n", host.name, "link", "set", "lo", "up")
        switch = stack.enter_context(_switch(devices, seed))
        yield HostNetwork(hosts, switch)


@contextmanager
def _switch(devices: Mapping[str, IO[bytes]], seed: int) -> "Iterator[subprocess.Popen[str]]":
    places = [f"{device.fileno()}={address}" for address, device in devices.items()]
    command = [sys.executable, "-m", "hosts.switch", str(seed), *places]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # The switch is a module of the scripts, which a Python with a safe path does not see.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        pass_fds=[it.fileno() for it in devices.values()],
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def _device(name: str) -> Iterator[IO[bytes]]:
    try:
        opened = Path("/dev/net/tun").open("r+b", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise NoNamespaces(f"no TUN devices: {error}") from error
    with opened:
        request = struct.pack("16sH22x", name.encode(), TUN_WITHOUT_HEADER)
        try:
            fcntl.ioctl(opened, TUNSETIFF, request)
        except OSError as error:
            raise NoNamespaces(f"cannot make a TUN device: {error}") from error
        yield opened


def _bring_up(device: str, address: str, *inside: str) -> None:
    ip_command(
        *inside, "link", "set", device, "addrgenmode", "none", "mtu", MTU, "txqueuelen", "4000"
    )
    ip_command(*inside, "address", "add", f"{address}/24", "dev", device)
    ip_command(*inside, "link", "set", device, "up")


def _errno() -> int:
    return ctypes.get_errno()
