"""The state of one broadcast: where its copies were appended and acknowledged, and what follows.

Every change returns a new value, or the same object if nothing changed. An acknowledgement is
permanent, and repeating one has no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from broker.core.cluster.resource_locks import locked_keys
from broker.core.naming import is_control_channel
from broker.model.broadcast import ADOPTION_KEY, Broadcast, Broadcasted, ResourceKey
from broker.model.ids import BroadcastId, TimeTick, VChannelName
from broker.model.message import Appended


class BroadcastPhase(Enum):
    """The phase of a broadcast. DONE is never stored: its record has been deleted."""

    PENDING = "pending"
    REPLICATED = "replicated"
    TOMBSTONE = "tombstone"
    DONE = "done"


class BroadcastStep(Enum):
    """What moves a broadcast to the next phase."""

    FINISH = "every vchannel has acknowledged and the callback took effect"
    FORGET = "the tombstone is old enough, or there are too many"


TRANSITIONS: Mapping[tuple[BroadcastPhase, BroadcastStep], BroadcastPhase] = {
    (BroadcastPhase.PENDING, BroadcastStep.FINISH): BroadcastPhase.TOMBSTONE,
    (BroadcastPhase.REPLICATED, BroadcastStep.FINISH): BroadcastPhase.TOMBSTONE,
    (BroadcastPhase.TOMBSTONE, BroadcastStep.FORGET): BroadcastPhase.DONE,
}
"""Every step there is. A recorded broadcast is never aborted: it completes, or waits in quarantine
for an operator."""

CAUSE_LENGTH_MAX = 2000
"""Of a cause that is stored, so that a record which fits the store still fits it with the cause."""

UNFINISHED = frozenset({BroadcastPhase.PENDING, BroadcastPhase.REPLICATED})


@dataclass(frozen=True, slots=True)
class BroadcastState:
    """One broadcast as it is recorded.

    `landed[i]` and `acked[i]` belong to `broadcast.vchannels[i]`: where its copy was appended, and
    whether it was acknowledged, which implies that it was appended. `origin` is the cluster that it
    was replicated from, empty for our own. `poison` says why its callback failed permanently: the
    broadcast is in quarantine; else empty.
    """

    id: BroadcastId
    state: BroadcastPhase
    broadcast: Broadcast
    landed: tuple[Appended | None, ...]
    acked: tuple[bool, ...]
    origin: str = ""
    poison: str = ""
    skipped: bool = False
    done_ms: int = 0

    @property
    def name(self) -> str:
        """Unique across clusters; the last part of its actor's path."""
        return broadcast_name(self.id, self.origin)

    @property
    def fingerprint(self) -> str:
        return self.broadcast.fingerprint

    @property
    def unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def to_append(self) -> tuple[VChannelName, ...]:
        """Vchannels without a known copy. Replicated ones were appended by their own cluster."""
        if self.state is not BroadcastPhase.PENDING:
            return ()
        pairs = zip(self.broadcast.vchannels, self.landed, strict=True)
        return tuple(vchannel for vchannel, landed in pairs if landed is None)

    @property
    def appends(self) -> bool:
        """Whether it will append more copies: some are missing, and it is not in quarantine."""
        return bool(self.to_append) and not self.poison

    @property
    def to_process(self) -> Mapping[VChannelName, TimeTick]:
        """The tick of each copy that is durable and not yet acknowledged, by vchannel."""
        each = zip(self.broadcast.vchannels, self.landed, self.acked, strict=True)
        return {name: landed.tick for name, landed, acked in each if landed and not acked}

    @property
    def all_acked(self) -> bool:
        return all(self.acked)

    @property
    def may_finish(self) -> bool:
        """Whether its callback may run, as far as this broadcast alone decides."""
        return self.unfinished and self.all_acked and not self.poison

    @property
    def order_tick(self) -> TimeTick | None:
        """The tick that orders its callback among those of conflicting broadcasts; None: not yet.

        The tick of the control channel's copy, or the largest of all copies if it has none there.
        """
        # The control channel orders cluster-wide changes, so its copy decides where there is one.
        control = [i for i, name in enumerate(self.broadcast.vchannels) if is_control_channel(name)]
        deciding = control or range(len(self.acked))
        if not all(self.acked[i] for i in deciding):
            return None
        ticks = [landed.tick for i in deciding if (landed := self.landed[i]) is not None]
        return max(ticks)

    @property
    def keys(self) -> tuple[ResourceKey, ...]:
        """The keys that it locks, which also order its callback."""
        return locked_keys(self.broadcast.keys)

    def outcome(self) -> Broadcasted:
        """The result for the caller."""
        pairs = zip(self.broadcast.vchannels, self.landed, strict=True)
        results = {name: landed for name, landed in pairs if landed}
        return Broadcasted(self.id, results, self.broadcast.answer)


def broadcast_name(broadcast_id: BroadcastId, origin: str) -> str:
    """A name that keeps ids of other clusters apart from our own."""
    return f"{origin}~{broadcast_id}" if origin else str(broadcast_id)


def new_broadcast(
    broadcast_id: BroadcastId, broadcast: Broadcast, origin: str = ""
) -> BroadcastState:
    """A broadcast as it is recorded before any copy is appended."""
    count = len(broadcast.vchannels)
    state = BroadcastPhase.REPLICATED if origin else BroadcastPhase.PENDING
    return BroadcastState(broadcast_id, state, broadcast, (None,) * count, (False,) * count, origin)


def with_appended(task: BroadcastState, results: Mapping[VChannelName, Appended]) -> BroadcastState:
    """Copies became durable. This acknowledges them too, unless `ack_sync_up` is set."""
    landed, acked = list(task.landed), list(task.acked)
    for index, vchannel in enumerate(task.broadcast.vchannels):
        # The first copy counts: a retry after a lost answer may have appended another one.
        if vchannel in results and landed[index] is None:
            landed[index] = results[vchannel]
            acked[index] = not task.broadcast.ack_sync_up
    return _changed(task, landed, acked)


def with_ack(
    task: BroadcastState, vchannel: VChannelName, where: Appended | None
) -> BroadcastState:
    """The copy on one vchannel was processed; the first acknowledgement counts.

    Without `where` it is ignored unless the copy is known: the copy will be appended again anyway.
    """
    index = task.broadcast.vchannels.index(vchannel)
    found = task.landed[index] or where
    if not task.unfinished or task.acked[index] or found is None:
        return task
    landed, acked = list(task.landed), list(task.acked)
    landed[index], acked[index] = found, True
    return _changed(task, landed, acked)


def poisoned(task: BroadcastState, cause: str) -> BroadcastState:
    """Its callback failed permanently: the broadcast goes into quarantine, an operator decides."""
    return replace(task, poison=cause[:CAUSE_LENGTH_MAX] or "no cause given")


def retried(task: BroadcastState) -> BroadcastState:
    """Leaves quarantine: the callback will be tried again."""
    return replace(task, poison="") if task.poison else task


def advanced(task: BroadcastState, step: BroadcastStep, now_ms: int) -> BroadcastState:
    """The broadcast after a step of the table; a finished one drops its body."""
    state = TRANSITIONS[task.state, step]
    bare = replace(task.broadcast, body=b"")
    # It can finish with the poison still set only when an operator has skipped its callback.
    return replace(task, state=state, broadcast=bare, skipped=bool(task.poison), done_ms=now_ms)


def forgettable(
    tombstones: Sequence[BroadcastState], now_ms: int, count_max: int, age_ms_max: int
) -> tuple[BroadcastState, ...]:
    """The tombstones to delete: the oldest beyond `count_max`, and all older than `age_ms_max`.

    One with a time in the future, because the clock was set back, counts as new. Those of adoptions
    go at once and are not counted: the plan refuses a repeat, and thousands of them must not push
    out what clients may ask for again.
    """
    adoptions = [it for it in tombstones if it.broadcast.request_key.startswith(ADOPTION_KEY)]
    others = [it for it in tombstones if not it.broadcast.request_key.startswith(ADOPTION_KEY)]
    oldest_first = sorted(others, key=lambda task: (task.done_ms, task.id))
    beyond = max(0, len(oldest_first) - count_max)
    old = [
        task
        for index, task in enumerate(oldest_first)
        if index < beyond or now_ms - task.done_ms > age_ms_max
    ]
    return (*adoptions, *old)


def _changed(
    task: BroadcastState, landed: list[Appended | None], acked: list[bool]
) -> BroadcastState:
    after = replace(task, landed=tuple(landed), acked=tuple(acked))
    return task if after == task else after
