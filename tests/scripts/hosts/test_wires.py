"""What becomes of packets between hosts."""

import random

import pytest
from hosts.wires import Wires

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def test_packets_arrive_at_once_where_nothing_is_wrong() -> None:
    assert Wires().late_s(A, B, random.Random(1)) == 0.0


def test_a_cut_is_one_way() -> None:
    wires = Wires({(A, B)})
    chance = random.Random(1)
    assert wires.late_s(A, B, chance) is None
    assert wires.late_s(B, A, chance) == wires.late_s(A, C, chance) == 0.0


def test_a_delay_strikes_what_a_host_sends_and_what_it_receives() -> None:
    wires = Wires(delay_s={A: 0.5, C: 0.25})
    chance = random.Random(1)
    assert wires.late_s(A, B, chance) == wires.late_s(B, A, chance) == 0.5
    assert wires.late_s(A, C, chance) == 0.75


def test_a_share_of_the_packets_of_a_host_is_lost() -> None:
    wires, chance = Wires(loss={A: 0.3}), random.Random(1)
    lost = sum(wires.late_s(B, A, chance) is None for _ in range(1000))
    assert lost == pytest.approx(300, abs=50)
    assert all(wires.late_s(B, C, chance) == 0.0 for _ in range(100))


def test_wires_are_told_in_a_line() -> None:
    wires = Wires({(A, B)}, {A: 0.5}, {B: 0.1})
    assert "\n" not in wires.encode()
    told = Wires.decode(wires.encode())
    assert (set(told.cut), told.delay_s, told.loss) == ({(A, B)}, {A: 0.5}, {B: 0.1})
