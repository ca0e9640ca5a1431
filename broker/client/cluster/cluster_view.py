"""Health and actors of a cluster whose nodes may be other processes, as if it were one tree.

Owns the paths: what is `/root/...` in node 2's own process is `/node-2/...` here. A node that does
not answer is shown as one that does not. Next: broker/client/cluster/admin.py
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import anyio

from broker.client.cluster.admin import ActorInfo, Admin, ChannelTrouble, Health
from broker.client.errors import TidemarkError
from broker.client.net.network import Network

T = TypeVar("T")

ROOT = "/root"
NODE = "/node-"
UNREACHABLE = "unreachable"


class ClusterView:
    """Asks the server, then the nodes that serve channels elsewhere, side by side."""

    def __init__(self, network: Network, admin: Admin, *, deadline_s: float) -> None:
        self._network = network
        self._admin = admin
        self._deadline_s = deadline_s

    async def health(self) -> Health:
        """The server's own, with what troubles its nodes."""
        found = await self._admin.health()
        for node_id, told in (await self._asked(found.node_id, Admin.health)).items():
            if isinstance(told, Health):
                known = {it.name for it in found.troubles}
                troubles = [it for it in told.troubles if it.name not in known]
                damages, unlisted = told.damages, told.damages_unlisted
                state, paused = told.state, told.consumption_paused
            else:
                troubles = [ChannelTrouble(f"node {node_id}", UNREACHABLE, str(told))]
                damages, unlisted, state, paused = (), 0, "degraded", False
            found = replace(
                found,
                state=found.state if state == "healthy" or found.state != "healthy" else "degraded",
                troubles=(*found.troubles, *troubles),
                damages=(*found.damages, *damages),
                damages_unlisted=found.damages_unlisted + unlisted,
                consumption_paused=found.consumption_paused or paused,
            )
        return found

    async def actors(self, path: str) -> list[ActorInfo]:
        """From `path` on, sorted by path."""
        if path.startswith(NODE):
            node_id, inside = _split(path)
            admin = (await self._nodes(0)).get(node_id)
            return [] if admin is None else _moved(node_id, await admin.actors(inside))
        found = await self._admin.actors(path)
        if path:
            return found
        own = (await self._admin.health()).node_id
        for node_id, told in (await self._asked(own, lambda it: it.actors(""))).items():
            if isinstance(told, list):
                found += _moved(node_id, told)
            else:
                name, extra = f"{NODE}{node_id}", {"last_error": str(told)}
                found.append(ActorInfo(name, 0, "supervisor", UNREACHABLE, 0, 0, 0, 0, extra))
        return sorted(found, key=lambda it: it.path)

    async def kill(self, path: str, term: int) -> int:
        """In whichever process the actor lives."""
        if path.startswith(NODE):
            node_id, inside = _split(path)
            admin = (await self._nodes(0)).get(node_id)
            if admin is not None:
                return await admin.kill(inside, term)
        return await self._admin.kill(path, term)

    async def _nodes(self, own: int) -> Mapping[int, Admin]:
        """Those that serve channels, but for the one with the server's own id."""
        channels = await self._admin.channels()
        addresses = {it.node_id: it.address for it in channels if it.address}
        return {
            node_id: Admin(self._network.connection(address), deadline_s=self._deadline_s)
            for node_id, address in sorted(addresses.items())
            if node_id != own
        }

    async def _asked(
        self, own: int, ask: Callable[[Admin], Awaitable[T]]
    ) -> dict[int, T | TidemarkError]:
        answers: dict[int, T | TidemarkError] = {}

        async def one(node_id: int, admin: Admin) -> None:
            try:
                answers[node_id] = await ask(admin)
            except TidemarkError as error:
                answers[node_id] = error

        nodes = await self._nodes(own)  # outside of the group, which would wrap its error
        async with anyio.create_task_group() as tasks:
            for node_id, admin in nodes.items():
                tasks.start_soon(one, node_id, admin)
        return {node_id: answers[node_id] for node_id in sorted(answers)}


def _split(path: str) -> tuple[int, str]:
    number, slash, rest = path.removeprefix(NODE).partition("/")
    return (int(number) if number.isdecimal() else 0), f"{ROOT}{slash}{rest}"


def _moved(node_id: int, found: list[ActorInfo]) -> list[ActorInfo]:
    return [replace(it, path=f"{NODE}{node_id}{it.path.removeprefix(ROOT)}") for it in found]
