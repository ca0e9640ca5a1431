"""Figures of disk and memory become one limit, with what to do."""

from broker.core.pressure.rate_limit import REJECTED, UNLIMITED, RateState
from broker.model.failure import StreamingCode
from broker.node.state.node_limits import GIB, PressureMarks
from broker.node.state.pressure import NodePressure, marks_of
from broker.ports.space.disk_room import DiskSpace

MARKS = PressureMarks(disk=marks_of(85, 95, 98), memory=marks_of(80, 90, 95))
DISK = 40 * GIB


def looked(pressure: NodePressure, free: int, used: int = 0) -> NodePressure:
    pressure.look(DiskSpace(DISK, free), (used, 100), MARKS)
    return pressure


def test_a_disk_that_fills_warns_then_slows_then_refuses_and_recovers() -> None:
    pressure = NodePressure()
    assert looked(pressure, DISK // 2).warnings() == []
    (warned,) = looked(pressure, 5 * GIB).warnings()
    assert "disk watermark WARN" in warned
    assert "appends go on" in warned
    assert pressure.limit == UNLIMITED
    assert looked(pressure, 3 * GIB // 2).limit.state is RateState.SLOWDOWN
    assert f"slowed to {pressure.limit.bytes_s} bytes/s" in pressure.warnings()[0]
    assert pressure.refusal is None
    refusal = looked(pressure, GIB // 2).refusal
    assert refusal is not None
    assert refusal.code is StreamingCode.RATE_LIMIT_REJECTED
    assert "drop or purge collections" in refusal.cause
    assert looked(pressure, GIB).limit == REJECTED, "a little more room is not enough"
    assert looked(pressure, DISK // 2).limit == UNLIMITED
    assert pressure.warnings() == []


def test_the_worse_of_disk_and_memory_holds_and_is_named_first() -> None:
    pressure = looked(NodePressure(), 5 * GIB, used=96)
    assert pressure.limit == REJECTED
    assert [it.partition(":")[0] for it in pressure.warnings()] == [
        "memory watermark REFUSE",
        "disk watermark WARN",
    ]
    refusal = pressure.refusal
    assert refusal is not None
    assert "96 of 100 bytes of memory" in refusal.cause


def test_a_disk_that_cannot_be_asked_limits_nothing() -> None:
    pressure = looked(NodePressure(), 0)
    pressure.look(None, (0, 0), MARKS)
    assert pressure.limit == UNLIMITED


async def test_a_change_of_the_limit_wakes_who_waits_for_it() -> None:
    pressure = NodePressure()
    changed = pressure.changed
    looked(pressure, DISK // 2)
    assert not changed.is_set()
    looked(pressure, 0)
    assert changed.is_set()
    assert not pressure.changed.is_set()
