"""Operates a cluster: health, channels and actors of all its processes, as if it were one server.

The tree of actors is one over all processes: what is `/root/...` in the process of node 2 is
`/node-2/...` here. A node that does not answer is shown as unreachable.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import anyio

from broker.client.cluster.server_admin import (
    ActorInfo,
    ChannelInfo,
    ChannelTrouble,
    Health,
    ServerAdmin,
    ServerTraffic,
)
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.switching.wal_calls import SERVICE as WAL_SERVICE
from broker.client.cluster.switching.wal_calls import WalCalls, WalStatus
from broker.client.errors import DeadlineExceeded, NotLeader, TidemarkError
from broker.client.net.network import Network

T = TypeVar("T")

ROOT = "/root"
NODE = "/node-"
UNREACHABLE = "unreachable"
HEALTHY = "healthy"

Channels = Sequence[ChannelInfo] | None


class Admin:
    """`log.admin`. Every call has a deadline and raises what `broker.client.errors` has.

    `known`: what `channels` has just answered, of a caller that makes several calls; they then need
    not ask for it again to find the nodes.
    """

    def __init__(
        self, network: Network, *, deadline_s: float, server: ServerAdmin | None = None
    ) -> None:
        """`server`: the one the client is connected to, unless a test gives another."""
        self._network = network
        self._server = server or ServerAdmin(network.coordinator, deadline_s=deadline_s)
        self._deadline_s = deadline_s
        calls = ServiceCalls(network.coordinator, WAL_SERVICE, deadline_s=deadline_s)
        self._wal = WalCalls(calls)

    async def health(self, *, known: Channels = None) -> Health:
        """The health of the server, with the troubles, damages and warnings of all its nodes."""
        found = await self._server.health()
        common = found.warnings
        try:
            answers = await self._ask_nodes(found.node_id, ServerAdmin.health, known)
        except (NotLeader, DeadlineExceeded):  # the last of several attempts may be cut short
            nobody_leads = not found.node_id and not found.leader and found.state != HEALTHY
            if not nobody_leads:
                raise
            return found  # a coordinator that says why; who the nodes are is not known meanwhile
        for node_id, answer in answers.items():
            if isinstance(answer, Health):
                # The coordinator and the node may both report a channel; it is listed once.
                listed = {it.name for it in found.troubles}
                troubles = [it for it in answer.troubles if it.name not in listed]
                damages, unlisted = answer.damages, answer.damages_unlisted
                # What all processes say alike, such as a link without TLS, is said once.
                own = [it for it in answer.warnings if it not in common]
                state, paused = answer.state, answer.consumption_paused
            else:
                troubles = [ChannelTrouble(f"node {node_id}", UNREACHABLE, str(answer))]
                damages, unlisted, state, paused, own = (), 0, "degraded", False, []
            found = replace(
                found,
                state=found.state if state == HEALTHY or found.state != HEALTHY else "degraded",
                troubles=(*found.troubles, *troubles),
                damages=(*found.damages, *damages),
                damages_unlisted=found.damages_unlisted + unlisted,
                consumption_paused=found.consumption_paused or paused,
                warnings=(*found.warnings, *[f"node {node_id}: {it}" for it in own]),
            )
        return found

    async def wal_name(self) -> str:
        """The kind of log behind the server, in Milvus's words; it decides the form of ids."""
        return (await self.health()).wal_name

    async def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        return await self._server.channels()

    async def actors(self, path: str = "", *, known: Channels = None) -> list[ActorInfo]:
        """The live tree of actors, or the part of it from `path` on; sorted by path."""
        if path.startswith(NODE):
            node_id, inside = _split(path)
            node = (await self._nodes(0)).get(node_id)
            return [] if node is None else _moved(node_id, await node.actors(inside))
        found = await self._server.actors(path)
        if path:
            return found
        own = (await self._server.health()).node_id
        answers = await self._ask_nodes(own, lambda it: it.actors(""), known)
        for node_id, answer in answers.items():
            if isinstance(answer, list):
                found += _moved(node_id, answer)
            else:
                name, extra = f"{NODE}{node_id}", {"last_error": str(answer)}
                found.append(ActorInfo(name, 0, "supervisor", UNREACHABLE, 0, 0, 0, 0, extra))
        return sorted(found, key=lambda it: it.path)

    async def traffic(self, *, known: Channels = None) -> list[ServerTraffic]:
        """What each process of the cluster has counted of each vchannel, since it started.

        A process that does not answer is left out. A vchannel that moved is counted by each
        process that has served it.
        """
        found = [await self._server.traffic()]
        own = (await self._server.health()).node_id
        answers = await self._ask_nodes(own, ServerAdmin.traffic, known)
        return found + [it for it in answers.values() if isinstance(it, ServerTraffic)]

    async def kill_actor(self, path: str, *, term: int = 0) -> int:
        """End an actor as if it had crashed; returns the term of the incarnation it killed.

        `term`: kill that incarnation only. Raises Unrecoverable unless the server runs with
        `--allow-chaos`; InvalidArgument when there is no actor of this path; TermMismatch when
        another incarnation lives there; ServerFailed while the actor waits for its restart.
        """
        if path.startswith(NODE):
            node_id, inside = _split(path)
            node = (await self._nodes(0)).get(node_id)
            if node is not None:
                return await node.kill(inside, term)
        # Of a node that is gone, too: the server refuses a path that has no actor.
        return await self._server.kill(path, term)

    async def pause_consumption(self) -> None:
        """Make consumers that are opened from now on wait until consumption is resumed.

        Readers that are open continue, and so do producers. The pause holds on every node, also on
        nodes that join later. A reader opened with `ignore_pause` does not wait; a bounded read
        that waits fails after `Deadlines.silence_s`.
        """
        await self._server.pause_consumption(paused=True)

    async def resume_consumption(self) -> None:
        """Let all waiting consumers start."""
        await self._server.pause_consumption(paused=False)

    async def streaming_version(self, at_least: int = 0) -> int:
        """The streaming version of the cluster, raised to `at_least` if it was lower.

        It never decreases. At 0 the channels of the cluster are read-only and appends wait.
        """
        return await self._server.streaming_version(at_least)

    async def alter_wal(self, target: str, *, leave_history: bool = False) -> WalStatus:
        """Begin to switch the log of the cluster to `target`, while it serves.

            await log.admin.alter_wal("kafka://10.0.0.5:9092/tidemark?replication=3")

        `target`: the URL of a Kafka, or "" for segment files. Returns at once; `wal_status` tells
        how far it is. Ids and ticks go on, and readers, cursors and groups notice nothing. The old
        log is removed in the end, unless `leave_history`. Raises InvalidArgument, with nothing
        changed, when a switch is under way, the log is there already, or the Kafka is away.
        """
        return await self._wal.alter(target, leaves_history=leave_history)

    async def wal_status(self) -> WalStatus:
        """Where the log is, and how far the newest switch of it is."""
        return await self._wal.status()

    async def abort_wal(self) -> WalStatus:
        """Turn a switch back, and remove the copy.

        Raises InvalidArgument when there is none, or pchannels append to the target already.
        """
        return await self._wal.abort()

    async def get_latest_mvcc_timestamp_if_local(self, vchannel: str) -> int:
        """A closed tick that no message of the vchannel exceeds.

        A reader that has seen this tick has seen everything that was acknowledged on the vchannel
        before the call. Raises NotLocal unless the server this client is connected to owns the
        vchannel: Milvus's GetLatestMVCCTimestampIfLocal.
        """
        return await self._server.latest_mvcc(vchannel)

    async def _nodes(self, own: int, known: Channels = None) -> Mapping[int, ServerAdmin]:
        """The nodes that serve channels, except the one with the server's own id."""
        channels = await self._server.channels() if known is None else known
        addresses = {it.node_id: it.address for it in channels if it.address}
        return {
            node_id: ServerAdmin(self._network.connection(address), deadline_s=self._deadline_s)
            for node_id, address in sorted(addresses.items())
            if node_id != own
        }

    async def _ask_nodes(
        self, own: int, ask: Callable[[ServerAdmin], Awaitable[T]], known: Channels
    ) -> dict[int, T | TidemarkError]:
        answers: dict[int, T | TidemarkError] = {}

        async def one(node_id: int, node: ServerAdmin) -> None:
            try:
                answers[node_id] = await ask(node)
            except TidemarkError as error:
                answers[node_id] = error

        # Outside of the task group, which would wrap an error in an ExceptionGroup.
        nodes = await self._nodes(own, known)
        async with anyio.create_task_group() as tasks:
            for node_id, node in nodes.items():
                tasks.start_soon(one, node_id, node)
        return {node_id: answers[node_id] for node_id in sorted(answers)}


def _split(path: str) -> tuple[int, str]:
    number, slash, rest = path.removeprefix(NODE).partition("/")
    return (int(number) if number.isdecimal() else 0), f"{ROOT}{slash}{rest}"


def _moved(node_id: int, found: list[ActorInfo]) -> list[ActorInfo]:
    return [replace(it, path=f"{NODE}{node_id}{it.path.removeprefix(ROOT)}") for it in found]
