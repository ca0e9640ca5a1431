"""One broadcast as it is remembered: its state, and on which vchannels it has landed and is acked.

Owns the state table and every change of a task. Each change gives a new value, or the same object
when nothing changed: what was acknowledged stays so, however often it is said again.
Next: broker/coordinator/broadcast/broadcast_task.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from broker.core.cluster.resource_locks import locked_keys
from broker.core.naming import is_control_channel
from broker.model.broadcast import Broadcast, Broadcasted, ResourceKey
from broker.model.ids import BroadcastId, TimeTick, VChannelName
from broker.model.message import Appended


class BroadcastPhase(Enum):
    """Where a broadcast is in its life. DONE is never stored: the record is gone then."""

    PENDING = "pending"
    REPLICATED = "replicated"
    TOMBSTONE = "tombstone"
    DONE = "done"


class BroadcastStep(Enum):
    """What moves a broadcast from one state to the next."""

    FINISH = "every vchannel has acknowledged and the callback took effect"
    FORGET = "the tombstone is old enough, or there are too many"


TRANSITIONS: Mapping[tuple[BroadcastPhase, BroadcastStep], BroadcastPhase] = {
    (BroadcastPhase.PENDING, BroadcastStep.FINISH): BroadcastPhase.TOMBSTONE,
    (BroadcastPhase.REPLICATED, BroadcastStep.FINISH): BroadcastPhase.TOMBSTONE,
    (BroadcastPhase.TOMBSTONE, BroadcastStep.FORGET): BroadcastPhase.DONE,
}
"""Every step there is; there is none back, and none that gives up."""

UNFINISHED = frozenset({BroadcastPhase.PENDING, BroadcastPhase.REPLICATED})


@dataclass(frozen=True, slots=True)
class BroadcastState:
    """`landed[i]` and `acked[i]` are of `broadcast.vchannels[i]`; what is acked has landed.

    `origin` is the cluster it was copied from, empty for one of our own; together with the id it is
    the task's name. `poison` says why the callback failed for good, and is empty otherwise.
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
        """Unique over all clusters; the last part of its actor's path."""
        return broadcast_name(self.id, self.origin)

    @property
    def fingerprint(self) -> str:
        return self.broadcast.fingerprint

    @property
    def unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def to_append(self) -> tuple[VChannelName, ...]:
        """Where no copy is known to be; a copied task was appended by somebody else."""
        if self.state is not BroadcastPhase.PENDING:
            return ()
        pairs = zip(self.broadcast.vchannels, self.landed, strict=True)
        return tuple(vchannel for vchannel, landed in pairs if landed is None)

    @property
    def appends(self) -> bool:
        """Whether copies are missing that will come by themselves: in quarantine none do."""
        return bool(self.to_append) and not self.poison

    @property
    def to_process(self) -> Mapping[VChannelName, TimeTick]:
        """Where the copy is durable and nobody has acknowledged it yet."""
        each = zip(self.broadcast.vchannels, self.landed, self.acked, strict=True)
        return {name: landed.tick for name, landed, acked in each if landed and not acked}

    @property
    def all_acked(self) -> bool:
        return all(self.acked)

    @property
    def may_finish(self) -> bool:
        """Whether nothing of its own keeps it from being called back."""
        return self.unfinished and self.all_acked and not self.poison

    @property
    def order_tick(self) -> TimeTick | None:
        """What gives its place in the order of callbacks, once it has one.

        The tick of the control channel's copy; of a broadcast that has none, the last of all.
        """
        control = [i for i, name in enumerate(self.broadcast.vchannels) if is_control_channel(name)]
        deciding = control or range(len(self.acked))
        if not all(self.acked[i] for i in deciding):
            return None
        ticks = [landed.tick for i in deciding if (landed := self.landed[i]) is not None]
        return max(ticks)

    @property
    def keys(self) -> tuple[ResourceKey, ...]:
        """What it locks, or what orders its callback."""
        return locked_keys(self.broadcast.keys)

    def outcome(self) -> Broadcasted:
        """What the asker is told."""
        pairs = zip(self.broadcast.vchannels, self.landed, strict=True)
        return Broadcasted(self.id, {name: landed for name, landed in pairs if landed})


def broadcast_name(broadcast_id: BroadcastId, origin: str) -> str:
    """Ids of another cluster never meet our own."""
    return f"{origin}~{broadcast_id}" if origin else str(broadcast_id)


def new_broadcast(
    broadcast_id: BroadcastId, broadcast: Broadcast, origin: str = ""
) -> BroadcastState:
    """A task as it is stored before anything is appended."""
    count = len(broadcast.vchannels)
    state = BroadcastPhase.REPLICATED if origin else BroadcastPhase.PENDING
    return BroadcastState(broadcast_id, state, broadcast, (None,) * count, (False,) * count, origin)


def with_appended(task: BroadcastState, results: Mapping[VChannelName, Appended]) -> BroadcastState:
    """Copies became durable. That is the acknowledgement too, unless more was asked for."""
    landed, acked = list(task.landed), list(task.acked)
    for index, vchannel in enumerate(task.broadcast.vchannels):
        if vchannel in results and landed[index] is None:
            landed[index] = results[vchannel]
            acked[index] = not task.broadcast.ack_sync_up
    return _changed(task, landed, acked)


def with_ack(
    task: BroadcastState, vchannel: VChannelName, where: Appended | None
) -> BroadcastState:
    """Somebody has processed the copy on one vchannel; the first to say so counts.

    Without `where` it counts only if the copy is known: else it is appended once more anyhow.
    """
    index = task.broadcast.vchannels.index(vchannel)
    found = task.landed[index] or where
    if not task.unfinished or task.acked[index] or found is None:
        return task
    landed, acked = list(task.landed), list(task.acked)
    landed[index], acked[index] = found, True
    return _changed(task, landed, acked)


def poisoned(task: BroadcastState, cause: str) -> BroadcastState:
    """Its callback failed for good; an operator decides."""
    return replace(task, poison=cause or "it did not say why")


def retried(task: BroadcastState) -> BroadcastState:
    """Its callback is to be tried again."""
    return replace(task, poison="") if task.poison else task


def advanced(task: BroadcastState, step: BroadcastStep, now_ms: int) -> BroadcastState:
    """The task after a step that the table has; a finished one keeps no body."""
    state = TRANSITIONS[task.state, step]
    bare = replace(task.broadcast, body=b"")
    return replace(task, state=state, broadcast=bare, skipped=bool(task.poison), done_ms=now_ms)


def forgettable(
    tombstones: Sequence[BroadcastState], now_ms: int, count_max: int, age_ms_max: int
) -> tuple[BroadcastState, ...]:
    """The tombstones to forget: the oldest beyond `count_max`, and all older than `age_ms_max`.

    One from the future, because the clock went back, counts as new.
    """
    oldest_first = sorted(tombstones, key=lambda task: (task.done_ms, task.id))
    beyond = max(0, len(oldest_first) - count_max)
    return tuple(
        task
        for index, task in enumerate(oldest_first)
        if index < beyond or now_ms - task.done_ms > age_ms_max
    )


def _changed(
    task: BroadcastState, landed: list[Appended | None], acked: list[bool]
) -> BroadcastState:
    after = replace(task, landed=tuple(landed), acked=tuple(acked))
    return task if after == task else after
