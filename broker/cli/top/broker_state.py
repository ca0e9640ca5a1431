"""Asks a broker for everything that the screen shows."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

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
from broker.model.groups.consumer_group import GroupView
from broker.model.ids import CollectionId
from broker.model.master.segment_meta import SegmentMeta
from broker.model.master.table_change import DEFAULT_DATABASE

BROADCASTER = "/root/coordinator/broadcaster/locks"
COMMITTER = "/root/coordinator/commits/committer"
COLLECTIONS_S = 10.0
SEGMENTS_S = 5.0
SEGMENTS_MAX = 2_000
"""Of one look: the coordinator reads a record for each."""
GROUPS_S = 2.0
GROUPS_MAX = 2_000
"""Groups on vchannels of one look, by name: each is an object of the answer."""
LAGS_S = 5.0
"""Between two counts of what cursors are behind: nodes read heads of records for it."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Everything the screen shows, at one time. `at_s` is monotonic, `at_ms` local Unix time.

    `missing`: what the broker did not answer, by the name of the field, with the error.
    `collections`, of all databases, and the messages that cursors are behind, may be from an
    earlier answer, of the times `collections_at_s` and `lags_at_s`. `segments`: the first
    SEGMENTS_MAX, by collection; None, like `partitions` and `groups`, before they were asked for.
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
    segments: Sequence[SegmentMeta] | None = None
    groups: Sequence[GroupView] | None = None
    partitions: Mapping[CollectionId, int] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    segments_at_s: float = float("-inf")
    groups_at_s: float = float("-inf")
    collections_at_s: float = float("-inf")
    lags_at_s: float = float("-inf")

    @property
    def vchannels(self) -> frozenset[str]:
        """Those of all collections, as the pchannels name them."""
        return frozenset(name for it in self.channels for name in it.vchannels)


async def read_state(
    client: Client,
    before: BrokerState | None = None,
    *,
    segments: bool = False,
    groups: bool = False,
) -> BrokerState:
    """Send all requests concurrently. Raises what `channels`, `health` and `actors` raise.

    Any other request that fails is noted in `missing`. Broadcasts and commits are requested only
    from a coordinator; a node has none. Collections are not asked for again while the pchannels
    name the same vchannels as `before`: they are the largest answer, and rarely change. `segments`
    and `groups`: ask for these (and for the numbers of partitions) if that was some time ago.
    """
    channels = await client.admin.channels()
    actors = await client.admin.actors(known=channels)
    health = await client.admin.health(known=channels)
    answers: dict[str, Any] = {}
    missing: dict[str, str] = {}

    async def ask(name: str, question: Callable[[], Awaitable[object]]) -> None:
        try:
            answers[name] = await question()
        except TidemarkError as error:
            missing[name] = str(error)

    questions = _questions(client, channels, actors)
    now_s = anyio.current_time()
    state = BrokerState(now_s, 0, health, channels, actors, collections_at_s=now_s)
    if before is not None and _are_the_same_collections(before, state):
        del questions["collections"]
        answers["collections"] = before.collections
        answers["collections_at_s"] = before.collections_at_s
    known = before or state
    state = _with_what_is_asked_rarely(state, known)
    if segments and now_s - known.segments_at_s >= SEGMENTS_S:
        questions |= _questions_of_segments(client)
        answers["segments_at_s"] = now_s
    if groups and now_s - known.groups_at_s >= GROUPS_S:
        questions |= _questions_of_groups(client, state)
        answers["groups_at_s"] = now_s
    # Not at the first look, which should come at once.
    measured = before is not None and now_s - before.lags_at_s >= LAGS_S
    if measured:
        questions["cursors"] = client.cursors.list
        answers["lags_at_s"] = now_s
    async with anyio.create_task_group() as tasks:
        for name, question in questions.items():
            tasks.start_soon(ask, name, question)
    if before is not None and not measured and "cursors" in answers:
        answers["cursors"] = _with_lags(answers["cursors"], before.cursors)
        answers["lags_at_s"] = before.lags_at_s
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return replace(state, at_s=anyio.current_time(), at_ms=now_ms, missing=missing, **answers)


def _with_what_is_asked_rarely(state: BrokerState, known: BrokerState) -> BrokerState:
    return replace(
        state,
        segments=known.segments,
        partitions=known.partitions,
        segments_at_s=known.segments_at_s,
        groups=known.groups,
        groups_at_s=known.groups_at_s,
    )


def _are_the_same_collections(before: BrokerState, now: BrokerState) -> bool:
    # Columns may be added without a change of vchannels, so the answer is used for a while only.
    fresh = now.at_s - before.collections_at_s < COLLECTIONS_S
    return fresh and "collections" not in before.missing and before.vchannels == now.vchannels


def _with_lags(cursors: Sequence[CursorView], before: Sequence[CursorView]) -> Sequence[CursorView]:
    known = {(it.name, it.epoch): it.lags for it in before}
    return [replace(it, lags=known.get((it.name, it.epoch), {})) for it in cursors]


def _questions(
    client: Client, channels: Sequence[ChannelInfo], actors: Sequence[ActorInfo]
) -> dict[str, Callable[[], Awaitable[object]]]:
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "traffic": lambda: client.admin.traffic(known=channels),
        "barriers": client.barriers.list,
        "collections": partial(_all_collections, client),
        # Without what only the owners can count: this is asked every second.
        "cursors": partial(client.cursors.list, measured=False),
    }
    running = {it.path for it in actors if it.state == "running"}
    if COMMITTER in running:
        questions["commits"] = client.commits.list
    if BROADCASTER in running:
        questions |= {"broadcasts": client.broadcast.list, "locks": client.broadcast.locks}
    return questions


def _questions_of_segments(client: Client) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "segments": lambda: client.master.show_segments(0, most=SEGMENTS_MAX),
        "partitions": client.master.count_partitions,
    }


def _questions_of_groups(
    client: Client, state: BrokerState
) -> dict[str, Callable[[], Awaitable[object]]]:
    vchannels = sorted(state.vchannels)
    return {"groups": lambda: client.groups.list_on(vchannels, most=GROUPS_MAX)}


async def _all_collections(client: Client) -> list[Collection]:
    found = await client.collections.list()
    for database in await client.master.list_databases():
        if database != DEFAULT_DATABASE:
            found += await client.collections.list(database=database)
    return found
