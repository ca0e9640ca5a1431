"""Cuts and barriers against a real broker in this process, under load and through its end."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from broker.client import (
    Client,
    ClosedClient,
    Cut,
    InvalidArgument,
    NoSuchCollection,
    Received,
    Watch,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget, ChannelFenced, ChannelNotExist, OperationIgnored
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

PCHANNELS = 4
PRODUCERS = 6
LEASES_S = (3.0, 9.0, 27.0)
"""Of somebody idle; his client renews it three times meanwhile, and may be late once or twice."""


async def read(log: Client, target: str, **options: object) -> list[Received]:
    with anyio.fail_after(60):
        return [it async for it in log.read(target, **options).messages()]  # type: ignore[arg-type]


def ids(messages: Iterable[Received]) -> dict[str, list[int]]:
    """By vchannel, in the order read."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        found[message.vchannel].append(message.id)
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_cuts_under_load_have_exactly_the_messages_up_to_their_tick(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    acknowledged: list[tuple[str, int, int]] = []
    cuts: list[tuple[Cut, int]] = []
    early: list[dict[str, list[int]]] = []
    async with (
        local_broker(tmp_path / "data", pchannels=PCHANNELS) as broker,
        connect(broker.address) as log,
    ):
        flights = await log.collections.create("flights", shards=PCHANNELS)
        stopping = anyio.Event()

        async def produce(name: str) -> None:
            async with connect(broker.address) as own:
                number = 0
                while not stopping.is_set():
                    number += 1
                    landed = await own.append("flights", b"x" * 100, key=f"{name} {number}")
                    acknowledged.append((landed.vchannel, landed.id, landed.tick))

        async with anyio.create_task_group() as tasks:
            for name in range(PRODUCERS):
                tasks.start_soon(produce, str(name))
            for _ in range(12):
                await wait_for_more(acknowledged, chance.randrange(1, 60))
                durable = list(acknowledged)
                cut = await log.cut("flights")
                assert all(tick <= cut.tick for _, _, tick in durable)
                cuts.append((cut, len(durable)))
                early.append(ids(await read(log, "flights", until=cut)))
            stopping.set()
        everything = await read(log, "flights", until="now")
        assert len(everything) == len(acknowledged)
        assert list(cuts[0][0].ends) == list(flights.vchannels)
        for (cut, _), read_then in zip(cuts, early, strict=True):
            wanted = ids(it for it in everything if it.tick <= cut.tick)
            assert read_then == wanted, "nothing is missing, nothing is later"
            assert ids(await read(log, "flights", until=cut)) == wanted
            assert ids(it for it in everything if it.id < cut.ends[it.vchannel]) == wanted
        first, last = cuts[0][0], cuts[-1][0]
        between = ids(await read(log, "flights", start=first, until=last))
        assert between == ids(it for it in everything if first.tick < it.tick <= last.tick)


async def wait_for_more(landed: list[tuple[str, int, int]], count: int) -> None:
    wanted = len(landed) + count
    with anyio.fail_after(60):
        while len(landed) < wanted:
            await anyio.lowlevel.checkpoint()


async def test_a_cut_is_soon_though_every_channel_is_idle(tmp_path: Path) -> None:
    settings = {"pchannels": 16, "tick_interval_ms": 600_000}
    async with (
        local_broker(tmp_path / "data", **settings) as broker,
        connect(broker.address) as log,
    ):
        names = [NewVChannel(f"by-dev-rootcoord-dml_{number}_7v0") for number in range(16)]
        landed = await log.append(names[3], b"x")
        with anyio.fail_after(60):  # a tenth of what a tick by itself takes to come
            cut = await log.cut(names)
        assert cut.tick >= landed.tick
        assert (await log.cut(names[:4], tick=cut.tick)).ends == {
            name: cut.ends[name] for name in names[:4]
        }


async def test_each_invalid_request_has_its_error(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        vchannel = NewVChannel("by-dev-rootcoord-dml_0_7v0")
        cut = await log.cut(vchannel)
        with pytest.raises(InvalidArgument):
            await log.cut([])
        with pytest.raises(InvalidArgument, match="ahead"):
            await log.cut(vchannel, tick=cut.tick + (60_000 << 18))
        with pytest.raises(NoSuchCollection):
            await log.cut("nowhere")
        with pytest.raises(ChannelNotExist):
            await log.cut(NewVChannel("by-dev-rootcoord-dml_1_7v0"))
        other = NewVChannel("by-dev-rootcoord-dml_0_8v0")
        for options in ({"until": cut}, {"start": cut}):
            with pytest.raises(BadTarget, match="the cut was not made for"):
                await read(log, other, **options)


async def test_workers_report_and_a_dashboard_watches(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=2) as broker,
        connect(broker.address) as log,
        connect(broker.address) as dashboard,
    ):
        vchannel = NewVChannel("by-dev-rootcoord-dml_0_7v0")
        nightly = log.barrier("nightly")
        async with nightly.join("a") as a, nightly.join("b") as b:
            async with dashboard.barrier("nightly").watch() as watch:
                for _ in range(3):
                    await log.append(vchannel, b"x")
                    cut = await log.cut(vchannel)
                    assert await a.report(cut.tick) < cut.tick
                    assert await b.report(cut.tick) == cut.tick
                    with anyio.fail_after(60):
                        assert await anext(watch) == cut.tick
            (view,) = [it for it in await log.barriers.list() if it.name == "nightly"]
            assert [(it.name, it.tick, it.silent) for it in view.peers] == [
                ("a", cut.tick, False),
                ("b", cut.tick, False),
            ]
            async with nightly.join("a") as later:
                with pytest.raises(ChannelFenced):
                    await a.report(cut.tick + 1)
                with pytest.raises(ChannelFenced):
                    await a.report(cut.tick + 1)
                assert await later.report(cut.tick) == cut.tick
        (view,) = [it for it in await log.barriers.list() if it.name == "nightly"]
        assert view.peers == ()


async def test_the_cluster_barrier_gives_ticks_that_are_closed_everywhere(tmp_path: Path) -> None:
    names = [f"by-dev-rootcoord-dml_{number}" for number in range(2)]
    settings = {"pchannels": 2, "soft_tick_interval_ms": 50, "tick_interval_ms": 50}
    async with (
        local_broker(tmp_path / "data", **settings) as broker,
        connect(broker.address) as log,
    ):
        with anyio.fail_after(60):
            async with log.barrier().watch() as watch:
                ticks = []
                async for tick in watch:
                    described = await log.offsets.describe(names)
                    assert all(it.closed_tick >= tick for it in described.values())
                    ticks.append(tick)
                    if len(ticks) == 5:
                        break
        assert ticks == sorted(set(ticks))
        with pytest.raises(ClosedClient):
            await anext(watch)


async def test_peers_and_watchers_continue_when_the_server_comes_back(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    settings = {"pchannels": "1", "tick_interval_ms": "50"}
    vchannel = NewVChannel("by-dev-rootcoord-dml_0_7v0")
    with BrokerProcess(tmp_path / "data", listen, **settings) as process:
        async with (
            connect(listen) as log,
            log.barrier("q").join("a", lease_s=2.0) as peer,
            log.barrier("q").watch() as watch,
        ):
            first = await log.cut(vchannel)
            assert await peer.report(first.tick) == first.tick
            assert await anext(watch) == first.tick
            process.kill()
            with BrokerProcess(tmp_path / "data", listen, **settings), anyio.fail_after(60):
                await peer.report(first.tick + 1, deadline_s=15.0)
                second = await log.cut(vchannel)
                await peer.report(second.tick)
                seen = [await anext(watch)]
                while seen[-1] < second.tick:
                    seen.append(await anext(watch))
                assert seen == sorted(set(seen))
                assert seen[0] > first.tick
                assert peer.rejoined >= 1


async def test_a_peer_that_is_only_idle_keeps_its_place(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        for lease_s in LEASES_S:
            longest_s = await keeps_its_place(log, lease_s)
            if longest_s is None:
                break
            # The client renews in time unless this process stood still for that long.
            assert longest_s > lease_s / 3
        else:
            pytest.fail("this machine stood still in each of the leases")
        dropped = log.barrier("q").watch()
        del dropped
        unused = log.barrier("q").watch()
        await unused.aclose()
        with pytest.raises(ClosedClient):
            await anext(unused)
        with pytest.raises(BadTarget):
            log.barrier("q", "firm")  # type: ignore[arg-type]


async def keeps_its_place(log: Client, lease_s: float) -> float | None:
    """None if it did; else the longest time between two turns of the event loop here."""
    loop, name, longest_s = asyncio.get_running_loop(), f"q{lease_s:.0f}", 0.0
    last_s = loop.time()
    async with log.barrier(name).join("a", lease_s=lease_s) as peer:
        enough_s = loop.time() + 1.2 * lease_s
        while loop.time() < enough_s:
            (view,) = [it for it in await log.barriers.list() if it.name == name]
            now_s = loop.time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
            if (len(view.peers), view.removed, peer.rejoined) != (1, (), 0):
                return longest_s
    return None


async def test_a_watch_ends_with_its_client(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        watch = log.barrier("q").watch()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends_closed, watch)
            with anyio.fail_after(60):
                while broker.edge.open_calls < 2:
                    await anyio.lowlevel.checkpoint()
            await log.aclose()


async def ends_closed(watch: Watch) -> None:
    with anyio.fail_after(60), pytest.raises(ClosedClient, match="client"):
        await anext(watch)


async def test_a_watch_ends_when_it_is_refused_for_good(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1, cluster="other") as broker,
        connect(broker.address, cluster="other") as log,
    ):
        # As if the server had been replaced.
        log._network.coordinator._at(broker.address)._cluster = "by-dev"
        with anyio.fail_after(60), pytest.raises(OperationIgnored):
            await anext(log.barrier("q").watch())
