"""Asks a broker for everything that the screen shows."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio

from broker.client import Client, Collection, TidemarkError
from broker.client.cluster import (
    ActorInfo,
    BarrierView,
    BroadcastInfo,
    ChannelInfo,
    CursorView,
    Health,
    LockInfo,
    ServerTraffic,
)
from broker.client.txn import AppCommits

BROADCASTER = "/root/coordinator/broadcaster/locks"
COMMITTER = "/root/coordinator/commits/committer"


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Everything the screen shows, at one time. `at_s` is monotonic, `at_ms` local Unix time.

    `missing`: what the broker did not answer, by the name of the field, with the error.
    """

    at_s: float
    at_ms: int
    health: Health
    channels: Sequence[ChannelInfo] = ()
    actors: Sequence[ActorInfo] = ()
    barriers: Sequence[BarrierView] = ()
    broadcasts: Sequence[BroadcastInfo] = ()
    locks: Sequence[LockInfo] = ()
    commits: Sequence[AppCommits] = ()
    collections: Sequence[Collection] = ()
    cursors: Sequence[CursorView] = ()
    traffic: Sequence[ServerTraffic] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


async def read_state(client: Client) -> BrokerState:
    """Send all requests concurrently. Raises what `health` and `actors` raise.

    Any other request that fails is noted in `missing`. Broadcasts and commits are requested only
    from a coordinator; a node has none.
    """
    actors = await client.admin.actors()
    health = await client.admin.health()
    answers: dict[str, object] = {}
    missing: dict[str, str] = {}

    async def ask(name: str, question: Callable[[], Awaitable[object]]) -> None:
        try:
            answers[name] = await question()
        except TidemarkError as error:
            missing[name] = str(error)

    async with anyio.create_task_group() as tasks:
        for name, question in _questions(client, actors).items():
            tasks.start_soon(ask, name, question)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return BrokerState(
        anyio.current_time(),
        now_ms,
        health,
        actors=actors,
        missing=missing,
        **answers,  # type: ignore[arg-type]
    )


def _questions(
    client: Client, actors: Sequence[ActorInfo]
) -> dict[str, Callable[[], Awaitable[object]]]:
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "traffic": client.admin.traffic,
        "channels": client.admin.channels,
        "barriers": client.barriers.list,
        "collections": client.collections.list,
        "cursors": client.cursors.list,
    }
    running = {it.path for it in actors if it.state == "running"}
    if COMMITTER in running:
        questions["commits"] = client.commits.list
    if BROADCASTER in running:
        questions |= {"broadcasts": client.broadcast.list, "locks": client.broadcast.locks}
    return questions
