"""Carries a plan out on hosts: processes die, packets are cut, late and lost, clocks step."""

import itertools
import random
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import anyio

from tests.chaos.storm.cluster import Cluster, Member
from tests.chaos.storm.faults import HELD_S, Storm, stop
from tests.chaos.storm.hosts.host_cluster import HostCluster
from tests.chaos.storm.plan import Fault
from tests.chaos.storm.run import Options, Stage

DELAYS_S = (0.005, 0.05, 0.3)
LOSSES = (0.02, 0.1, 0.3)
STEPS_MS = (-600_000, -20_000, -1_000, 1_000, 20_000, 600_000)
"""Also clocks that are ten minutes apart."""


@dataclass(slots=True)
class HostStorm(Storm):
    """What strikes a process strikes one of any kind, unless the fault names a kind."""

    keys: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def hosts(self) -> HostCluster:
        return cast("HostCluster", self.cluster)

    async def rage(self, plan: Sequence[Fault]) -> None:
        """Behind the last fault the clocks are right again.

        A node whose clock is behind removes nothing by age until then, as its page says; the calm
        is too short to wait for that.
        """
        await Storm.rage(self, plan)
        for member in self._stepping:
            member.step_clock(0)

    @property
    def _stepping(self) -> list[Member]:
        return [*self.hosts.coordinators, *self.hosts.nodes]

    async def _carry_out(self, fault: Fault) -> str:
        chance, hosts = random.Random(repr(fault.choices)), self.hosts
        victims = {
            "kill-kafka": (hosts.kafkas, 1),
            "kill-most-of-kafka": (hosts.kafkas, 2),
            "kill-etcd": (hosts.etcds, 1),
            "kill-most-of-etcd": (hosts.etcds, 2),
            "kill-coordinator": (hosts.coordinator_hosts, 1),
            "kill-node": (hosts.node_hosts, 1),
        }.get(fault.kind)
        if victims is not None:
            return self._kill(chance.sample(*victims))
        every = list(hosts.network.hosts)
        match fault.kind:
            case "kill-owner":
                return await self._kill_owner()
            case "kill-actor":
                return await self._kill_actor(fault)
            case "stop":
                return await self._stop(chance.choice(every), fault.lasts_s)
            case "zombie" | "last-word":
                return await self._make_zombie(fault)
            case "clock-step":
                return self._step(chance)
            case _:
                return await self._strike_network(fault, chance, every)

    async def _strike_network(
        self, fault: Fault, chance: random.Random, every: Sequence[str]
    ) -> str:
        network, key = self.hosts.network, str(next(self.keys))
        one, other = chance.sample(every, 2)
        match fault.kind:
            case "partition":
                network.cut(f"{key}a", [one], [other])
                network.cut(f"{key}b", [other], [one])
                told = f"{one} and {other}"
            case "isolate":
                network.cut(f"{key}a", [one], every)
                network.cut(f"{key}b", every, [one])
                told = one
            case "one-way":
                network.cut(f"{key}a", [one], [other])
                told = f"{one} to {other}"
            case "delay":
                by_s = chance.choice(DELAYS_S)
                network.delay(f"{key}a", one, by_s)
                told = f"{one} by {by_s} s"
            case "loss":
                share = chance.choice(LOSSES)
                network.lose(f"{key}a", one, share)
                told = f"{one}, {share:.0%}"
            case _:
                raise AssertionError(fault.kind)
        try:
            await anyio.sleep(fault.lasts_s)
        finally:
            for end in "ab":
                network.heal(f"{key}{end}")
        return told

    def _kill(self, hosts: Sequence[str]) -> str:
        killed = [it for it in hosts if self.hosts.process_on(it).signal(signal.SIGKILL)]
        return ", ".join(killed)

    async def _make_zombie(self, fault: Fault) -> str:
        """As on one machine, but clients are told of the new owners; they stay for a while.

        With "last-word" the new owners die before an append of the zombie leaves the door: it is
        the newest in its topic, behind all that they have acknowledged.
        """
        nodes = self.hosts.nodes
        member = nodes[fault.choices[0] % len(nodes)]
        last = fault.kind == "last-word"
        async with member.held() if last or fault.choices[1] % 2 else nullcontext():
            await anyio.sleep(HELD_S)
            whom = await stop(member, fault.lasts_s)
            if last:
                for other in nodes:
                    if other is not member:
                        other.signal(signal.SIGKILL)
        return whom

    async def _stop(self, host: str, lasts_s: float) -> str:
        return await stop(cast("Member", self.hosts.process_on(host)), lasts_s)

    def _step(self, chance: random.Random) -> str:
        """The wall clock of one of ours. It stays there until it steps again, or all is over."""
        member = chance.choice(self._stepping)
        ms = chance.choice(STEPS_MS)
        member.step_clock(ms)
        return f"{member.name} by {ms / 1000:+.0f} s"


def _cluster(options: Options, folder: Path) -> Cluster:
    return HostCluster(options, folder)


HOSTS = Stage(_cluster, HostStorm)
