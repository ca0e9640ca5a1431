"""Starts at a time, and starts behind which retention has removed messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from broker.app import run_single
from broker.app.limits_from_settings import node_limits
from broker.client import Client, connect
from broker.client.batch_tick import BatchTick
from broker.client.cluster.cursor import ResetTo
from broker.client.errors import BadTarget, OutOfRange, Unrecoverable
from broker.client.read.batch_start import _begin as start_of_batches
from broker.client.read.start import _progress as start_of_messages
from broker.client.start_time import refuse_tick, tick_at
from broker.core.time import tso
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.named_cursor import ChannelPosition
from broker.node.state.node_limits import NodeLimits
from broker.process_settings import Settings
from tests.local_broker import local_broker

V = "by-dev-rootcoord-dml_0_7v0"
SEGMENT_BYTES = 64 * 1024
FILLER = b"filler" + bytes(6_000)
FORGOTTEN_S_MAX = 60.0


def test_a_time_is_the_smallest_tick_of_its_millisecond() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    expected = tso.compose(round(at.timestamp() * 1000), 0)
    assert tick_at(at) == expected
    assert tick_at("2026-01-02T03:04:05.678Z") == expected
    assert tick_at("2026-01-02T05:04:05.678+02:00") == expected
    assert tick_at(at + timedelta(microseconds=1)) == expected + (1 << 18), "never before the time"
    assert tick_at(datetime(1900, 1, 1, tzinfo=UTC)) == 0
    assert 0 < tick_at(datetime.max.replace(tzinfo=UTC)) < 1 << 63


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001 - what it is about
    assert tick_at(local) == tick_at("2026-01-02T03:04") == tick_at(local.astimezone(UTC))


@pytest.mark.parametrize("wrong", ["", "yesterday", "10m", "2026-13-01T00:00", 7])
def test_a_text_that_is_no_time_is_named(wrong: Any) -> None:
    with pytest.raises(BadTarget, match="is not a time"):
        tick_at(wrong)


@pytest.mark.parametrize("odd", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_no_calendar_has_everywhere_is_out_of_range(odd: str) -> None:
    with pytest.raises(BadTarget, match="out of range"):
        tick_at(odd)


def test_a_tick_below_what_was_removed_is_refused_and_the_first_ticks_are_not() -> None:
    held = ChannelOffsets(
        PChannelName("p"),
        Term(1),
        MessageId(5),
        MessageId(9),
        TimeTick(90),
        0,
        removed_tick=TimeTick(50),
    )
    for tick in (0, 1, 51, 60):
        refuse_tick("p", tick, held, ("p_1v0",))
    with pytest.raises(OutOfRange, match="behind tick 49") as caught:
        refuse_tick("p", 50, held, ("p_1v0",))
    assert (caught.value.after_tick, caught.value.first_id) == (49, 5)
    refuse_tick("p", BatchTick(60, ("p",)), held, ("p_1v0",))
    with pytest.raises(BadTarget, match="p_2v1 may be behind"):
        refuse_tick("p", BatchTick(60, ("p_1v0",)), held, ("p_1v0", "p_2v1"))


@asynccontextmanager
async def forgetful(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of a broker that keeps little."""

    def impatient(settings: Settings) -> NodeLimits:
        """Retention looks every 10 s otherwise, and the tests would do little but wait for it."""
        return replace(node_limits(settings), retention_period_s=0.2)

    monkeypatch.setattr(run_single, "node_limits", impatient)
    settings = {
        "pchannels": 1,
        "segment_bytes": SEGMENT_BYTES,
        "retention_bytes": 2 * SEGMENT_BYTES,
        "hold_bytes_max": 0,
        "snapshot_records": 1,
        "snapshot_period_s": 0.2,
        "tail_age_s": 0.5,
    }
    async with local_broker(folder, **settings) as broker, connect(broker.address) as log:
        yield log


async def until_removed(log: Client, target: str, tick: int) -> None:
    """Append until retention has removed a message behind this tick."""
    with anyio.fail_after(FORGOTTEN_S_MAX):
        while (await log.offsets.describe([V]))[V].removed_tick <= tick:
            await log.append(target, FILLER)


def readers(log: Client) -> list[Any]:
    return [log.read, log.read_batches]


async def first_payload(scanner: Any) -> bytes:
    async with scanner:
        async for message in scanner.messages():
            payload: bytes = message.payload
            return payload
    raise AssertionError("nothing was read")


async def test_a_start_behind_which_messages_were_removed_is_an_error_but_a_time_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forgetful(tmp_path, monkeypatch) as log:
        vchannels = (await log.collections.create("flights", shards=1)).vchannels
        landed = await log.append("flights", b"lost")
        cut = await log.cut("flights")
        elsewhere = await log.cut(await one_more(log))
        for how in readers(log):
            async with how("flights", start=how.__name__) as scanner:
                async for batch in scanner:
                    if batch.messages:
                        break
                await scanner.commit()
        await log.cursor("moved").move(cut.tick, "flights")
        await log.cursor("fresh").reset("all", "flights")
        await until_removed(log, vchannels[0], cut.tick)
        for how in readers(log):
            lost = [
                ("tick", landed.tick),
                ("tick", cut.tick + 1),
                cut,
                how.__name__,
                log.cursor("moved"),
                "fresh",
            ]
            if how == log.read_batches:
                lost.append(elsewhere)
            for start in lost:
                with pytest.raises((OutOfRange, Unrecoverable)):
                    await first_payload(how("flights", start=start))
            at = datetime.fromtimestamp((landed.tick >> 18) / 1000, UTC)
            for start in (
                "all",
                ("tick", 0),
                ("tick", 1),
                at,
                ("time", at),
                ("time", at.isoformat()),
            ):
                assert await first_that_is_left(how, start) == FILLER
        for place in (cut, ("tick", landed.tick)):
            with pytest.raises(OutOfRange, match="retention removed messages behind tick"):
                await log.cursor("moved").reset(cast("ResetTo", place))
        for to in ("all", at):
            assert await first_behind_a_reset(log, to) == FILLER


async def first_that_is_left(how: Any, start: Any) -> bytes:
    """The first payload; retention may pass the start between its look-up and the read."""
    with anyio.fail_after(FORGOTTEN_S_MAX):
        while True:
            try:
                return await first_payload(how("flights", start=start))
            except OutOfRange:
                continue


async def first_behind_a_reset(log: Client, to: Any) -> bytes:
    """The first payload behind a reset; retention may pass the cursor between the two."""
    with anyio.fail_after(FORGOTTEN_S_MAX):
        while True:
            await log.cursor("moved").reset(cast("ResetTo", to))
            try:
                return await first_payload(log.read("flights", start="moved"))
            except OutOfRange:
                continue


async def test_what_is_removed_while_a_start_is_planned_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forgetful(tmp_path, monkeypatch) as log:
        (vchannel,) = (await log.collections.create("flights", shards=1)).vchannels
        landed = await log.append("flights", b"lost")
        cut = await log.cut("flights")
        before = (await log.offsets.describe([vchannel]))[vchannel]
        assert before.removed_tick == 0
        await until_removed(log, vchannel, cut.tick)
        for start in (("tick", landed.tick), cut, ChannelPosition(cut.tick)):
            with pytest.raises(OutOfRange, match="retention removed messages behind tick"):
                await start_of_messages(log.offsets, vchannel, start, before)
        other = Cut(cut.tick, {"elsewhere": MessageId(1)})
        for batch_start in (("tick", landed.tick), other, {vchannel: ChannelPosition(cut.tick)}):
            with pytest.raises(OutOfRange, match="retention removed messages behind tick"):
                await start_of_batches(log.offsets, batch_start, before, (vchannel,))


async def one_more(log: Client) -> str:
    await log.collections.create("elsewhere", shards=1)
    return "elsewhere"


async def test_a_cursor_that_is_at_the_end_survives_the_removal_of_all_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forgetful(tmp_path, monkeypatch) as log:
        await log.collections.create("flights", shards=1)
        for how in readers(log):
            name = how.__name__
            landed = await log.append("flights", b"lost")
            await until_removed(log, "flights", landed.tick)
            await log.cursor(name).reset("latest", "flights")
            await log.append("flights", b"new " + name.encode())
            async with how("flights", start=name, until="now") as scanner:
                found = [it.payload async for it in scanner.messages()]
                await scanner.commit()
            assert found == [b"new " + name.encode()]
            held = (await log.offsets.describe([V]))[V]
            assert (await log.cursor(name).get()).tick >= held.removed_tick > 0


async def test_readers_start_at_a_time(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=2) as broker,
        connect(broker.address) as log,
    ):
        await log.collections.create("flights", shards=2)
        early = await log.append("flights", b"early", key=b"a")
        boundary = datetime.fromtimestamp((early.tick >> 18) / 1000, UTC) + timedelta(
            milliseconds=1
        )
        late = early
        while late.tick < tick_at(boundary):
            late = await log.append("flights", b"late", key=b"b")
        for how in readers(log):
            for start in (boundary, ("time", boundary), ("time", boundary.isoformat())):
                scanner = how("flights", start=start, until="now")
                ticks = [it.tick async for it in scanner.messages()]
                assert late.tick in ticks
                assert min(ticks) >= tick_at(boundary) > early.tick
        await log.cursor("billing").reset(boundary, "flights")
        scanner = log.read("flights", start="billing", until="now")
        assert early.tick not in [it.tick async for it in scanner.messages()]
        for wrong in (("time", "yesterday"), ("time", 7), ("at", boundary), 1.5):
            for how in readers(log):
                with pytest.raises(BadTarget, match=r"is no start|is not a time"):
                    await how("flights", start=wrong).open()
