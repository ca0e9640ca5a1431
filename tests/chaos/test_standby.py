"""Several coordinators on one folder: processes that die, stop, are paused, or start at once."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.client import Client, Deadlines, TidemarkError, connect
from broker.client.cluster import Health
from broker.client.cluster.barrier import Peer
from broker.client.errors import NotLeader
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from schemas.generated.tidemark import v1
from tests.broker_process import free_port
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

PCHANNELS = "2"
PATIENT = Deadlines(connect_s=GUARD_S)
KILLS = int(os.environ.get("TIDEMARK_STANDBY_KILLS", "5"))
"""100 for a long run."""


def coordinator(data: Path, address: str, *options: str, **settings: str) -> RoleProcess:
    given = ("--data-dir", str(data), "--listen", address, "--pchannels", PCHANNELS)
    return RoleProcess("coordinator", *given, *options, **settings)


def node(number: int, data: Path, servers: str) -> RoleProcess:
    options = ("--node-id", str(number), "--coordinator", servers, "--data-dir", str(data))
    return RoleProcess("node", *options, "--listen", "127.0.0.1:0")


class Coordinators:
    """Two addresses, and the process that runs at each."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.processes: dict[str, RoleProcess] = {}

    @property
    def servers(self) -> str:
        return ",".join(self.addresses)

    def start(self, address: str) -> RoleProcess:
        self.processes[address] = coordinator(self.data, address)
        return self.processes[address]

    async def start_in_order(self) -> None:
        """The first one leads, the second one stands by."""
        await self.start(self.addresses[0]).ready()
        await self.start(self.addresses[1]).stands_by()

    def end(self) -> None:
        for process in self.processes.values():
            process.__exit__()


@asynccontextmanager
async def cluster(data: Path, nodes: int = 1) -> AsyncIterator[tuple[Coordinators, Client]]:
    """Two coordinators in order, nodes that know both, and a client that knows both."""
    found = Coordinators(data)
    async with AsyncExitStack() as running:
        running.callback(found.end)
        await found.start_in_order()
        for number in range(1, nodes + 1):
            await running.enter_context(node(number, data, found.servers)).ready()
        yield found, await running.enter_async_context(connect(found.servers))


async def health(log: Client) -> Health:
    """What the leader says; asked again while there is none."""
    with anyio.fail_after(GUARD_S):
        while True:
            try:
                return await log.admin.health()
            except TidemarkError:
                await anyio.sleep(0.05)


async def payloads(log: Client, vchannel: str) -> list[bytes]:
    return [it.payload async for it in log.read(vchannel, start="all", until="now").messages()]


async def test_a_standby_names_the_leader_and_refuses_everything_else(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=0) as (found, log):
        leader, standby = found.addresses
        told = await health(log)
        assert (told.leader, told.standbys) == (leader, (standby,))
        alone = Connection(standby, cluster="by-dev", lifetime=ClientLifetime())
        asked = v1.ListCollectionsRequest(), v1.ListCollectionsResponse
        with pytest.raises(NotLeader, match=f"the leader is {leader}; call it") as refused:
            await alone.call("/tidemark.v1.Collections/List", *asked, deadline_s=GUARD_S)
        alone.close()
        assert refused.value.leader == leader
        # Who knows it alone is led on by that answer.
        async with connect(standby) as other:
            assert await other.collections.list() == []
        # Wrong addresses, one that is away, and a standby before the leader.
        nobody = f"127.0.0.1:{free_port()}"
        async with connect(f"{nobody},{standby},{leader}") as other:
            assert (await health(other)).leader == leader
        # The leader need not be among those that were given.
        async with connect(f"{nobody},{standby}") as other:
            assert (await health(other)).leader == leader


async def test_two_that_start_at_once_get_one_leader(tmp_path: Path) -> None:
    found = Coordinators(tmp_path)
    try:
        for address in found.addresses:
            found.start(address)
        async with connect(await first_ready(found)) as log:
            told = await health(log)
            assert {told.leader, *told.standbys} == set(found.addresses)
            assert len(told.standbys) == 1
    finally:
        found.end()


async def first_ready(found: Coordinators) -> str:
    """The addresses, when both processes have said what they are, and one of them leads."""
    lines = [await it.first_line() for it in found.processes.values()]
    assert sorted(it.split()[1] for it in lines) == ["ready", "standby"]
    return found.servers


async def test_appends_and_calls_go_on_after_each_kill_of_a_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (found, log):
        vchannel = (await log.collections.create("rows", shards=2)).vchannels[0]
        terms = {it.name: it.term for it in await log.admin.channels()}
        sent = []
        for number in range(KILLS):
            leader = (await health(log)).leader
            found.processes[leader].__exit__()
            sent.append(b"%d" % number)
            await log.append(vchannel, sent[-1], deadline_s=GUARD_S)
            told = await health(log)
            assert told.leader != leader
            await log.collections.create(f"rows-{number}", exist_ok=True)
            await found.start(leader).stands_by()
        assert await payloads(log, vchannel) == sent

        async def served() -> bool:
            return all(it.state == "assigned" for it in await log.admin.channels())

        await until(served)
        assert {it.name: it.term for it in await log.admin.channels()} == terms, (
            "the sessions and channels of nodes live on"
        )


async def test_a_leader_that_stops_hands_over_and_ends_in_order(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (found, log):
        leader, standby = found.addresses
        vchannel = (await log.collections.create("rows", shards=1)).vchannels[0]
        process = found.processes[leader]
        process.process.send_signal(signal.SIGTERM)
        # No error reaches the client: it waits.
        await log.append(vchannel, b"during", deadline_s=GUARD_S)
        await log.collections.create("during", shards=1)
        assert (await health(log)).leader == standby
        with anyio.fail_after(GUARD_S):
            assert await anyio.to_thread.run_sync(process.process.wait) == 0
        assert await payloads(log, vchannel) == [b"during"]


async def test_a_standby_ends_in_order_and_is_not_named_any_more(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=0) as (found, log):
        leader, standby = found.addresses
        assert found.processes[standby].terminate() == 0
        told = await health(log)
        assert (told.leader, told.standbys) == (leader, ())


async def test_nothing_that_a_paused_leader_does_later_takes_effect(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (found, log):
        leader, standby = found.addresses
        vchannel = (await log.collections.create("rows", shards=1)).vchannels[0]
        await log.append(vchannel, b"before", deadline_s=GUARD_S)
        paused = found.processes[leader]
        os.kill(paused.pid, signal.SIGSTOP)
        standby_first = ",".join(reversed(found.addresses))
        async with connect(standby_first, deadlines=PATIENT) as other:
            # Only after its lease: that it is paused does not show otherwise.
            await other.append(vchannel, b"after", deadline_s=GUARD_S)
            await other.collections.create("after", shards=1)
            assert (await health(other)).leader == standby
            before = [(it.name, it.term, it.node_id) for it in await other.admin.channels()]
            # It has calls of the first client in its sockets, and ticks and leases in its memory.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_try_to_create, leader)
                os.kill(paused.pid, signal.SIGCONT)
            assert "a newer coordinator leads this cluster" in await paused.complaint(code=3)
            names = {it.name for it in await other.collections.list()}
            assert names == {"rows", "after"}
            after = [(it.name, it.term, it.node_id) for it in await other.admin.channels()]
            assert after == before
            await other.append(vchannel, b"last", deadline_s=GUARD_S)
            assert await payloads(other, vchannel) == [b"before", b"after", b"last"]


async def _try_to_create(address: str) -> None:
    """Ask the one that was paused; it may refuse, hang or end, but must not do it."""
    with pytest.raises(TidemarkError), anyio.fail_after(GUARD_S):
        async with connect(address) as log:
            await log.collections.create("zombie", shards=1)


async def test_a_rolling_restart_of_everything_lets_clients_wait_and_nothing_else(
    tmp_path: Path,
) -> None:
    found = Coordinators(tmp_path)
    nodes: dict[int, RoleProcess] = {}
    try:
        await found.start_in_order()
        for number in (1, 2):
            nodes[number] = node(number, tmp_path, found.servers)
            await nodes[number].ready()
        async with connect(found.servers, deadlines=Deadlines(call_s=GUARD_S)) as log:
            vchannels = (await log.collections.create("rows", shards=2)).vchannels
            load = Load(log, vchannels)
            async with anyio.create_task_group() as tasks:
                for vchannel in vchannels:
                    tasks.start_soon(load.append, vchannel)
                tasks.start_soon(load.ask)
                leader, standby = found.addresses
                for address in (standby, leader):
                    await load.goes_on()
                    assert found.processes[address].terminate() == 0
                    await found.start(address).stands_by()
                for number, process in [*nodes.items()]:
                    await load.goes_on()
                    assert process.terminate() == 0
                    nodes[number] = node(number, tmp_path, found.servers)
                    await nodes[number].ready()
                await load.goes_on()
                load.done = True
            for vchannel in vchannels:
                assert await payloads(log, vchannel) == load.sent[vchannel]
    finally:
        found.end()
        for process in nodes.values():
            process.__exit__()


class Load:
    """Appends to vchannels and asks the coordinator, until `done`; any error fails the test."""

    def __init__(self, log: Client, vchannels: tuple[str, ...]) -> None:
        self.sent: dict[str, list[bytes]] = {it: [] for it in vchannels}
        self.asked = 0
        self.done = False
        self._log = log

    async def append(self, vchannel: str) -> None:
        while not self.done:
            payload = b"%d" % len(self.sent[vchannel])
            await self._log.append(vchannel, payload, deadline_s=GUARD_S)
            self.sent[vchannel].append(payload)

    async def ask(self) -> None:
        while not self.done:
            self.asked += 1
            assert await self._log.collections.list()

    async def goes_on(self) -> None:
        """Until each has done something more."""
        before = [*map(len, self.sent.values()), self.asked]

        async def more() -> bool:
            now = [*map(len, self.sent.values()), self.asked]
            return all(it > was for it, was in zip(now, before, strict=True))

        await until(more)


async def test_wrong_starts_beside_a_leader_are_refused_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = Coordinators(data)
    try:
        await found.start(found.addresses[0]).ready()
        with coordinator(data, "127.0.0.1:0", "--cluster", "other") as stranger:
            assert "the metadata belongs to another cluster" in await stranger.complaint()
        with RoleProcess("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0") as single:
            assert "is in use by process" in await single.complaint()
        with node(1, data, "127.0.0.1:1,127.0.0.1:1") as twice:
            assert "names 127.0.0.1:1 twice" in await twice.complaint(code=2)
    finally:
        found.end()


async def test_no_tick_passes_a_barrier_that_a_living_peer_has_not_reached(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (found, log):
        vchannels = (await log.collections.create("rows", shards=1)).vchannels
        barrier = log.barrier("nightly")
        async with barrier.join("fast") as fast, barrier.join("slow") as slow:
            first = (await log.cut(vchannels)).tick
            assert await fast.report(first, deadline_s=GUARD_S) == 0
            assert await slow.report(first, deadline_s=GUARD_S) == first
            await log.append(vchannels[0], b"not yet processed by slow", deadline_s=GUARD_S)
            second = (await log.cut(vchannels)).tick
            found.processes[found.addresses[0]].__exit__()
            # The fast one joins the next leader's barrier at once, and nobody else is there yet.
            assert await fast.report(second, deadline_s=GUARD_S) < second
            await until(lambda: rejoined(slow))
            assert await fast.report(second, deadline_s=GUARD_S) < second
            async with barrier.watch(first) as watch:
                await slow.report(second, deadline_s=GUARD_S)
                with anyio.fail_after(GUARD_S):
                    while await anext(watch) < second:
                        pass


async def rejoined(peer: Peer) -> bool:
    return peer.rejoined > 0


async def test_a_node_that_stops_with_the_leader_tells_the_next_one(tmp_path: Path) -> None:
    """As on a host that restarts: who told nobody would keep its channels for its lease."""
    found = Coordinators(tmp_path)
    try:
        await found.start_in_order()
        options = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
        known = ("--node-id", "1", "--coordinator", found.servers)
        settings = {"drain_s": "60", "log_level": "info"}
        patient = RoleProcess("node", *known, *options, **settings)
        with patient, node(2, tmp_path, found.servers) as other:
            await patient.ready()
            await other.ready()
            leader, standby = [found.processes[it] for it in found.addresses]
            # So that it takes over when the node has found nobody, and not before.
            os.kill(standby.pid, signal.SIGSTOP)
            assert leader.terminate() == 0
            patient.process.send_signal(signal.SIGTERM)
            await patient.says("cannot renew the lease")
            os.kill(standby.pid, signal.SIGCONT)
            with anyio.fail_after(GUARD_S):
                _, said = await anyio.to_thread.run_sync(patient.process.communicate)
            assert "leaves: its lease will expire" not in said
            assert "without handing off" not in said
            async with connect(found.servers, deadlines=PATIENT) as log:

                async def moved() -> bool:
                    return set((await owners(log)).values()) == {2}

                await until(moved)
    finally:
        found.end()
