"""Who holds back the removal of a log, what is removed, and who was passed by it."""

from dataclasses import dataclass, field
from enum import StrEnum

from broker.model.ids import MessageId, TimeTick


class HolderKind(StrEnum):
    """Who may hold a part of a log."""

    SNAPSHOT = "snapshot"
    TRANSACTION = "transaction"
    CURSOR = "cursor"
    READER = "reader"
    BACKUP = "backup"
    GROUP = "group"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True)
class Hold:
    """Someone needs every message of a pchannel with a tick > `tick` and an id >= `from_id`.

    With `from_id` 0 also the transactions that were open at `tick`, whole. `bytes_max`: the holder
    is passed when it holds back more than this; None: never. `until_ms`: it is passed afterwards,
    in Unix milliseconds; None: never. `vchannels`: it needs those of these only; none: of all.
    """

    kind: HolderKind
    name: str
    tick: TimeTick = TimeTick(0)
    from_id: MessageId = MessageId(0)
    bytes_max: int | None = None
    until_ms: int | None = None
    vchannels: frozenset[str] = frozenset()


class PassCause(StrEnum):
    """Why retention removed what a holder still needed."""

    BYTES = "bytes"
    TIME = "time"
    UNASKED = "unasked"
    """The coordinator did not answer, and the log had grown beyond the bound."""


@dataclass(frozen=True, slots=True)
class Holding:
    """`bytes`: what retention would have removed without this holder."""

    kind: HolderKind
    name: str
    bytes: int
    bytes_max: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """Retention passed this holder: what it needed up to `removed_tick` is removed.

    `bytes`: what it held back by then. `limit`: the one it exceeded: bytes, or Unix milliseconds.
    """

    kind: HolderKind
    name: str
    cause: PassCause
    bytes: int
    limit: int
    removed_tick: TimeTick
    passed_ms: int


@dataclass(frozen=True, slots=True)
class Removal:
    """What of a pchannel's log is going to be removed: ids below `first_id`, up to `tick`.

    `holders`: who keeps it from being more. `passed`: who loses messages by it.
    """

    first_id: MessageId
    tick: TimeTick = TimeTick(0)
    bytes: int = 0
    holders: tuple[Holding, ...] = field(default=())
    passed: tuple[Passed, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What is known of one pchannel: who holds back how much of it, and who was passed."""

    holders: tuple[Holding, ...] = ()
    passed: tuple[Passed, ...] = ()
