"""What happens to a cluster while flights go in: a host dies, a link is cut, both are mended."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from hosts.kept_cluster import ClusterState, ask_keeper

from broker.client import Client, DeadlineExceeded
from runs.hosts_demo.seats import LEADERS, SPARK

TRIES = 6
"""Of a call that has ten seconds."""
Step = Callable[[Client], Awaitable[str]]


@dataclass(slots=True)
class Story:
    """Each step happens at a share of the flights. `say` is told of it; `told`: when, and what."""

    folder: Path
    state: ClusterState
    say: Callable[[str], None]
    told: list[tuple[float, str]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    _dead: str = ""
    _apart: tuple[str, ...] = ()

    async def goes_on(self, log: Client, share: float) -> None:
        """Whatever is due when so much was appended. Raises NoCluster."""
        steps: list[tuple[float, Step]] = [
            (0.2, self._a_host_dies),
            (0.45, self._a_link_is_cut),
            (0.7, self._the_host_is_back),
            (0.85, self._the_link_is_whole),
        ]
        for at, step in steps[len(self.told) :]:
            if share < at:
                return
            what = await step(log)
            self.told.append((time.monotonic() - self.began_s, what))
            self.say(f"[bold]{self.told[-1][0]:6.1f} s[/bold]  {what}")

    async def _a_host_dies(self, log: Client) -> str:
        self._dead = await self._leading(log)
        names = ", ".join([it.name for it in self.state.hosts[self._dead]])
        await self._ask(kill=self._dead)
        return f"host {self._dead} dies, with {names}; the leader was there"

    async def _a_link_is_cut(self, log: Client) -> str:
        if not self.state.namespaces:
            return "no link is cut: all hosts are loopback"
        leading = await self._leading(log)
        nodes = [
            host for host, some in self.state.hosts.items()
            if host not in (self._dead, leading) and any("node" in it.name for it in some)
        ]  # fmt: skip
        if not nodes:
            return "no link is cut: there is no third host"
        self._apart = (leading, nodes[0])
        await self._ask(cut=self._apart)
        return f"the link from {leading}, where the leader is, to node host {nodes[0]} is cut"

    async def _the_host_is_back(self, _: Client) -> str:
        await self._ask(start=self._dead)
        return f"host {self._dead} is back; its processes serve"

    async def _the_link_is_whole(self, _: Client) -> str:
        if not self._apart:
            return "no link was cut"
        await self._ask(heal=self._apart)
        return f"the link from {self._apart[0]} to {self._apart[1]} is whole again"

    async def _leading(self, log: Client) -> str:
        """The host of who leads; another one may take over just now, on a busy machine."""
        for left in reversed(range(TRIES)):
            try:
                leader = (await log.admin.health()).leader
                break
            except DeadlineExceeded:
                if not left:
                    raise
        return dict(zip(self.state.servers.split(","), LEADERS, strict=True))[leader]

    async def _ask(self, **request: object) -> None:
        await anyio.to_thread.run_sync(lambda: ask_keeper(self.folder, **request))


def has_spark(state: ClusterState) -> bool:
    """Whether the cluster was started with Spark."""
    return bool(state.hosts.get(SPARK))
