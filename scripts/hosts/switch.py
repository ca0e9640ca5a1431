"""Carries IP packets between hosts, a process of its own, as `Wires` say.

Each host has a TUN device, whose other end is here. So packets are late and lost also where the
kernel has no `netem`. `python -m hosts.switch SEED FD=ADDRESS ...`; each line of
its input is a `Wires`, and is answered when it holds.
"""

import heapq
import os
import random
import selectors
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from actors import SystemClock
from hosts.wires import Wires

PACKET_BYTES_MAX = 1 << 16
WAITING_MAX = 20_000
"""Packets that are late; more are lost, as in a queue that is full."""
IPV4 = 4
READS_MAX = 64
"""Packets of one host before others have their turn."""


class Packet(NamedTuple):
    """One that is late. `number`: packets that are due at once keep their order."""

    due_s: float
    number: int
    device: int
    content: bytes


class Switch:
    """`devices`: file descriptors by the address of the host."""

    def __init__(self, devices: dict[str, int], seed: int) -> None:
        self._devices = devices
        self._chance = random.Random(seed)
        self._waiting: list[Packet] = []
        self._numbers = count()
        self.wires = Wires()

    def take(self, content: bytes, now_s: float) -> None:
        """Pass a packet on, keep it for later, or lose it."""
        if len(content) < 20 or content[0] >> 4 != IPV4:
            return
        sender, receiver = (socket.inet_ntoa(content[at : at + 4]) for at in (12, 16))
        device = self._devices.get(receiver)
        late_s = self.wires.late_s(sender, receiver, self._chance)
        if device is None or late_s is None:
            return
        if not late_s:
            _write(device, content)
        elif len(self._waiting) < WAITING_MAX:
            packet = Packet(now_s + late_s, next(self._numbers), device, content)
            heapq.heappush(self._waiting, packet)

    def pass_due(self, now_s: float) -> float | None:
        """Pass on what is due; the seconds until more is."""
        while self._waiting and self._waiting[0].due_s <= now_s:
            packet = heapq.heappop(self._waiting)
            _write(packet.device, packet.content)
        return self._waiting[0].due_s - now_s if self._waiting else None


def _write(device: int, content: bytes) -> None:
    with suppress(OSError):  # full, or down: it is lost
        os.write(device, content)


def _packets(device: int) -> Iterable[bytes]:
    for _ in range(READS_MAX):
        try:
            yield os.read(device, PACKET_BYTES_MAX)
        except OSError:
            return


def main() -> None:
    """Until its input ends."""
    seed, *places = sys.argv[1:]
    devices = {address: int(fd) for fd, address in (it.split("=") for it in places)}
    switch = Switch(devices, int(seed))
    clock = SystemClock()
    with selectors.DefaultSelector() as ready:
        for device in devices.values():
            os.set_blocking(device, False)
            ready.register(device, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while True:
            wait_s = switch.pass_due(clock.monotonic_s())
            for key, _ in ready.select(wait_s):
                if key.fd == sys.stdin.fileno():
                    line = sys.stdin.readline()
                    if not line:
                        return
                    switch.wires = Wires.decode(line)
                    sys.stdout.write("ok\n")
                    sys.stdout.flush()
                    continue
                now_s = clock.monotonic_s()
                for content in _packets(key.fd):
                    switch.take(content, now_s)


if __name__ == "__main__":
    main()
