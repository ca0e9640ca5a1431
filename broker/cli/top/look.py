"""One look at a broker: everything the screen shows, asked at once.

Owns the questions, and what two looks say together: rates.
"""

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
class Look:
    """`at_s` is of a clock that only grows, `at_ms` Unix time on this machine."""

    at_s: float
    at_ms: int
    health: Health
    channels: Sequence[ChannelInfo]
    actors: Sequence[ActorInfo]
    barriers: Sequence[BarrierView]
    broadcasts: Sequence[BroadcastInfo]
    locks: Sequence[LockInfo]
    commits: Sequence[AppCommits]


async def take(client: Client) -> Look:
    """All answers, asked for side by side. Raises what the first failed question raises.

    About broadcasts and commits only where somebody carries them out: a node has nobody to ask.
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
    return Look(at_s=anyio.current_time(), at_ms=now_ms, **answers)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, between two looks; nothing for what was not there in both."""

    handled: Mapping[str, float]
    appended: Mapping[str, float]

    @staticmethod
    def between(before: Look | None, now: Look) -> "Rates":
        """Of an incarnation that is another one by now, what it has handled since it began."""
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
