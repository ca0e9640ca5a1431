"""Asks a broker for everything that the screen shows, and computes rates between two answers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from broker.client import Client
from broker.client.cluster import ActorInfo, BroadcastInfo, ChannelInfo, Health, LockInfo
from broker.client.txn import AppCommits
from broker.model.barrier import BarrierView

BROADCASTER = "/root/coordinator/broadcaster/locks"
COMMITTER = "/root/coordinator/commits/committer"


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Everything the screen shows, at one time. `at_s` is monotonic, `at_ms` local Unix time."""

    at_s: float
    at_ms: int
    health: Health
    channels: Sequence[ChannelInfo]
    actors: Sequence[ActorInfo]
    barriers: Sequence[BarrierView]
    broadcasts: Sequence[BroadcastInfo]
    locks: Sequence[LockInfo]
    commits: Sequence[AppCommits]


async def read_state(client: Client) -> BrokerState:
    """Send all requests concurrently. Raises the error of the first failed one.

    Broadcasts and commits are requested only from a coordinator; a node has none.
    """
    actors = await client.admin.actors()
    answers: dict[str, object] = {"actors": actors, "broadcasts": (), "locks": (), "commits": ()}

    async def ask(name: str, question: Callable[[], Awaitable[object]]) -> None:
        answers[name] = await question()

    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "health": client.admin.health,
        "channels": client.admin.channels,
        "barriers": client.barriers.list,
    }
    running = {it.path for it in actors if it.state == "running"}
    if COMMITTER in running:
        questions["commits"] = client.commits.list
    if BROADCASTER in running:
        questions |= {"broadcasts": client.broadcast.list, "locks": client.broadcast.locks}
    try:
        async with anyio.create_task_group() as tasks:
            for name, question in questions.items():
                tasks.start_soon(ask, name, question)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return BrokerState(at_s=anyio.current_time(), at_ms=now_ms, **answers)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second between two states, of what is in both."""

    handled: Mapping[str, float]
    appended: Mapping[str, float]

    @staticmethod
    def between(before: BrokerState | None, now: BrokerState) -> "Rates":
        """The rates from `before` to `now`. A restarted actor counts from its restart."""
        if before is None or now.at_s <= before.at_s:
            return Rates({}, {})
        seconds = now.at_s - before.at_s
        handled = {(it.path, it.term): it.handled for it in before.actors}
        paths = {it.path for it in before.actors}
        ids = {it.name: it.next_id for it in before.channels}
        return Rates(
            handled={
                it.path: (it.handled - handled.get((it.path, it.term), 0)) / seconds
                for it in now.actors
                if it.path in paths
            },
            appended={
                it.name: max(0, it.next_id - ids[it.name]) / seconds
                for it in now.channels
                if it.name in ids
            },
        )
