"""Cuts that split no broadcast, on real brokers, while actors and processes are killed."""

import random
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from broker.client import (
    Client,
    Cut,
    Deadlines,
    InvalidArgument,
    NoSuchCollection,
    Received,
    TidemarkError,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import DeadlineExceeded, ServerFailed
from broker.coordinator.leases.leadership import lead
from broker.meta.sqlite import SqliteMetaStore
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

NAMES = [NewVChannel(f"by-dev-rootcoord-dml_{number}_7v0") for number in range(4)]
WORKERS = 8
ENOUGH_S = 180.0


class Transfers:
    """Broadcasts to two vchannels each, without end; what was not answered may be there as well."""

    def __init__(self, log: Client) -> None:
        self.done = 0
        self._log = log

    async def run(self, seed: int) -> None:
        chance = random.Random(seed)
        number = 0
        while True:
            number += 1
            key = f"{seed} {number}"
            with anyio.fail_after(ENOUGH_S):
                while not await self._sent(chance.sample(NAMES, 2), key):
                    pass
            self.done += 1

    async def _sent(self, names: list[str], key: str) -> bool:
        try:
            await self._log.broadcast.append(names, b"moved", idempotency_key=key, deadline_s=20.0)
        except TidemarkError:
            return False
        return True

    def start(self, tasks: TaskGroup) -> None:
        for seed in range(WORKERS):
            tasks.start_soon(self.run, seed)


async def read(log: Client, **options: object) -> list[Received]:
    found: list[Received] = []
    for name in NAMES:
        found += [it async for it in log.read(name, **options).messages()]  # type: ignore[arg-type]
    return found


async def check(log: Client, cuts: list[Cut]) -> None:
    """Each broadcast is on two vchannels; every cut has both copies, or none."""
    everything = await read(log, until="now")
    firsts: dict[int, dict[str, int]] = {}
    for message in sorted(everything, key=lambda it: it.tick):
        assert message.broadcast_id is not None
        firsts.setdefault(message.broadcast_id, {}).setdefault(message.vchannel, message.tick)
    assert len(firsts) > len(cuts)
    assert any(min(it.values()) <= cuts[-1].tick for it in firsts.values())
    for cut in cuts:
        inside = [sum(at <= cut.tick for at in ticks.values()) for ticks in firsts.values()]
        assert set(inside) <= {0, 2}, "no broadcast is split"


async def whole_cut(log: Client) -> Cut:
    """Asked again, as errors that may pass allow."""
    while True:
        try:
            return await log.cut(NAMES, whole_broadcasts=True)
        except TidemarkError as error:
            if not error.retriable:
                raise


async def take(log: Client, transfers: Transfers, cuts: int) -> list[Cut]:
    found: list[Cut] = []
    with anyio.fail_after(ENOUGH_S):
        while len(found) < cuts:
            before = transfers.done
            found.append(await whole_cut(log))
            while transfers.done < before + WORKERS:  # noqa: ASYNC110 - others count it
                await anyio.sleep(0.001)
    return found


async def test_every_cut_has_all_of_a_broadcast_or_nothing_while_many_are_under_way(
    tmp_path: Path,
) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=4) as broker,
        connect(broker.address) as log,
        connect(broker.address) as other,
    ):
        cuts: list[Cut] = []

        async def also(transfers: Transfers) -> None:
            cuts.extend(await take(other, transfers, 15))

        async with anyio.create_task_group() as tasks:
            transfers = Transfers(log)
            transfers.start(tasks)
            async with anyio.create_task_group() as cutting:
                cutting.start_soon(also, transfers)
                cuts.extend(await take(log, transfers, 15))
            for path in ("broadcaster/locks", "cut_lock", "oracle"):
                broker.system.kill(f"/root/coordinator/{path}")
                cuts.extend(await take(log, transfers, 3))
            tasks.cancel_scope.cancel()
        last = await log.cut(NAMES, whole_broadcasts=True)
        await check(log, [*cuts, last])
        measure = await log.measure(NAMES, after=cuts[0].tick, until=last.tick, rows_max=40)
        await check(log, [await log.cut(NAMES, tick=measure.choice.tick)])


async def test_the_coordinator_of_several_nodes_may_be_killed_and_the_cuts_hold(
    tmp_path: Path,
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    settings = {"nodes": "2", "pchannels": "4"}
    with BrokerProcess(tmp_path / "data", listen, **settings) as process:
        async with connect(listen) as log, anyio.create_task_group() as tasks:
            transfers = Transfers(log)
            transfers.start(tasks)
            cuts = await take(log, transfers, 4)
            process.kill()
            with BrokerProcess(tmp_path / "data", listen, **settings):
                cuts += await take(log, transfers, 4)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    last = await log.cut(NAMES, whole_broadcasts=True)
                    await check(log, [*cuts, last])


async def test_a_coordinator_that_was_deposed_takes_no_whole_cut_any_more(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=4) as broker,
        connect(broker.address) as log,
    ):
        await log.cut(NAMES, whole_broadcasts=True)
        async with await SqliteMetaStore.open(tmp_path / "data" / "meta.sqlite") as store:
            await lead(store)
        # On a slow machine none of the client's tries ends within the first deadline.
        for call_s in (2.0, 8.0, 32.0):
            async with connect(broker.address, deadlines=Deadlines(call_s=call_s)) as later:
                with pytest.raises((ServerFailed, DeadlineExceeded)) as refused:
                    await later.cut(NAMES, whole_broadcasts=True)
            if isinstance(refused.value, ServerFailed):
                break
        assert isinstance(refused.value, ServerFailed)
        assert "the cut took longer" in str(refused.value)


async def test_each_misuse_of_a_whole_cut_has_its_error(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        cut = await log.cut(NAMES[0], whole_broadcasts=True)
        assert list(cut.ends) == NAMES[:1]
        with pytest.raises(InvalidArgument, match="chooses its tick"):
            await log.cut(NAMES[0], tick=cut.tick, whole_broadcasts=True)
        with pytest.raises(InvalidArgument, match="at least one channel"):
            await log.cut([], whole_broadcasts=True)
        with pytest.raises(NoSuchCollection):
            await log.cut("nowhere", whole_broadcasts=True)
