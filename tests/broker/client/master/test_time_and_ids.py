"""Timestamps and ids from a real broker: over restarts, from many clients, and bad counts."""

from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from broker.client import Message, connect
from broker.client.errors import ClosedClient, InvalidArgument
from broker.core.master.id_window import FIRST_ID
from tests.local_broker import local_broker


def assert_disjoint(ranges: list[tuple[int, int]]) -> None:
    assert all(end <= start for (_, end), (start, _) in pairwise(sorted(ranges)))


async def test_nothing_repeats_over_clients_and_restarts(tmp_path: Path) -> None:
    ids: list[tuple[int, int]] = []
    ticks: list[tuple[int, int]] = []
    for _ in range(3):
        async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
            async with connect(broker.address) as other:

                async def take() -> None:
                    for client in (log, other):
                        for count in (1, 7, 65_536):
                            ids.append(_range(await client.master.alloc_id(count), count))
                            ids.append(_range(await client.master.ids.alloc(count), count))
                            first = await client.master.alloc_timestamp(count)
                            ticks.append(_range(first, count))
                            cached = await client.master.timestamps.alloc(count)
                            ticks.append(_range(cached, count))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take)
                    tasks.start_soon(take)
            # Without it, a tick that its node reserved up to 10 ms before is as good.
            last = max(end for _, end in ticks) - 1
            later = Message(b"later", barrier_time_tick=last)
            landed = await log.raw_append(f"{broker_pchannel()}_1v0", later)
            assert landed.tick > last
    assert_disjoint(ids)
    assert_disjoint(ticks)
    assert min(first for first, _ in ids) == FIRST_ID


async def test_a_bad_count_is_refused_with_its_value_and_what_is_allowed(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        for count in (0, -1, 65_537, 1 << 40):
            shown = count if 0 <= count < 1 << 32 else 0
            with pytest.raises(InvalidArgument, match=f"must be 1 to 65536, not {shown}"):
                await log.master.alloc_timestamp(count)
            with pytest.raises(InvalidArgument, match=f"must be 1 to 65536, not {shown}"):
                await log.master.alloc_id(count)


async def test_large_batches_of_ids_move_no_time(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        before = await log.master.alloc_timestamp()
        for _ in range(300):  # more than one reserved range
            await log.master.alloc_id(65_536)
        after = await log.master.alloc_timestamp()
        assert (after >> 18) - (before >> 18) < 60_000


async def test_the_dd_channel_is_the_control_channel(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        assert await log.master.get_dd_channel() == f"{broker_pchannel()}_vcchan"


async def test_a_closed_client_allocates_nothing(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        async with connect(broker.address) as log:
            await log.master.ids.alloc()
        with pytest.raises(ClosedClient):
            await log.master.ids.alloc()
        with pytest.raises(ClosedClient):
            await log.master.alloc_timestamp()


def broker_pchannel() -> str:
    return "by-dev-rootcoord-dml_0"


def _range(first: int, count: int) -> tuple[int, int]:
    return first, first + count
