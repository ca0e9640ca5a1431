"""Packets through the switch: at once, later in order, or lost."""

import os
import socket
from collections.abc import Iterator

import pytest
from hosts.switch import Switch
from hosts.wires import Wires

A, B = "10.0.0.1", "10.0.0.2"


def packet(sender: str, receiver: str, body: bytes = b"") -> bytes:
    head = bytes([0x45]) + bytes(11)
    return head + socket.inet_aton(sender) + socket.inet_aton(receiver) + body


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def came(reading: int) -> bytes:
    try:
        return os.read(reading, 1000)
    except BlockingIOError:
        return b""


def test_a_packet_goes_to_the_host_that_it_names_and_to_no_other(ends: tuple[int, int]) -> None:
    reading, writing = ends
    switch = Switch({B: writing}, 1)
    for nobodys in (packet(B, "10.0.0.9"), b"short", bytes([0x60]) + bytes(40)):
        switch.take(nobodys, 0.0)
    assert came(reading) == b""
    switch.take(packet(A, B), 0.0)
    assert came(reading) == packet(A, B)


def test_late_packets_come_when_they_are_due_and_in_order(ends: tuple[int, int]) -> None:
    reading, writing = ends
    switch = Switch({B: writing}, 1)
    assert switch.pass_due(0.0) is None
    switch.wires = Wires(delay_s={B: 0.5})
    for body in (b"one", b"two"):
        switch.take(packet(A, B, body), 10.0)
    assert switch.pass_due(10.2) == pytest.approx(0.3)
    assert came(reading) == b""
    assert switch.pass_due(10.5) is None
    assert came(reading) == packet(A, B, b"one") + packet(A, B, b"two")


def test_a_host_that_takes_nothing_loses_packets_and_stops_nobody(ends: tuple[int, int]) -> None:
    reading, writing = ends
    os.set_blocking(writing, False)
    switch = Switch({B: writing}, 1)
    for _ in range(100_000 // 32):
        switch.take(packet(A, B, bytes(32)), 0.0)
    assert came(reading).startswith(packet(A, B))
