"""Changes of groups, as they are stored: the bodies of records of kind GROUP_CHANGE.

JSON, because a person may have to read it in an emergency; a change holds many messages.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, assert_never

from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick, TxnId

SPANS_MAX: Final = 4096
"""Of one change."""


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """A new group. `floor` None: it begins behind this record's own tick."""

    name: str
    lease_ms: int
    floor: TimeTick | None


@dataclass(frozen=True, slots=True)
class MessagesAcked:
    """The messages of these spans are acknowledged."""

    name: str
    spans: tuple[TickSpan, ...]


@dataclass(frozen=True, slots=True)
class AckedInTxn:
    """The messages of these spans are acknowledged if the transaction `txn` commits.

    `times`: how often they were delivered.
    """

    name: str
    txn: TxnId
    spans: tuple[TickSpan, ...]
    times: int


@dataclass(frozen=True, slots=True)
class GroupSought:
    """The group starts anew behind `floor`, whatever was acknowledged. None: as in the creation."""

    name: str
    floor: TimeTick | None


@dataclass(frozen=True, slots=True)
class GroupDropped:
    """There is no such group any more."""

    name: str


GroupChange = GroupCreated | MessagesAcked | AckedInTxn | GroupSought | GroupDropped


class UnreadableChange(Exception):
    """The body is damaged, or a later release wrote it."""


def encode_change(change: GroupChange) -> bytes:
    """The body of the record."""
    fields: dict[str, Any] = {"group": change.name}
    match change:
        case GroupCreated(_, lease_ms, floor):
            fields |= {"change": "created", "lease_ms": lease_ms, "floor": floor}
        case MessagesAcked(_, spans):
            fields |= {"change": "acked", "spans": _pairs(spans)}
        case AckedInTxn(_, txn, spans, times):
            # Not "acked" with a transaction beside it: an earlier release would apply that at once.
            fields |= {"change": "acked in txn", "txn": txn, "spans": _pairs(spans)}
            fields["times"] = times
        case GroupSought(_, floor):
            fields |= {"change": "sought", "floor": floor}
        case GroupDropped():
            fields |= {"change": "dropped"}
        case _:
            assert_never(change)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_change(body: bytes) -> GroupChange:
    """The change in a record's body. Raises UnreadableChange."""
    try:
        return _decoded(json.loads(body))
    except (LookupError, TypeError, ValueError) as error:
        raise UnreadableChange(f"a change of a group is damaged: {error!r}") from error


def _decoded(fields: dict[str, Any]) -> GroupChange:
    name = str(fields["group"])
    match fields["change"]:
        case "created":
            return GroupCreated(name, int(fields["lease_ms"]), _tick(fields["floor"]))
        case "acked":
            return MessagesAcked(name, _spans(fields))
        case "acked in txn":
            txn, times = TxnId(int(fields["txn"])), int(fields["times"])
            return AckedInTxn(name, txn, _spans(fields), times)
        case "sought":
            return GroupSought(name, _tick(fields["floor"]))
        case "dropped":
            return GroupDropped(name)
        case other:
            raise UnreadableChange(f"a later release changed a group: {other!r} is not known")


def _pairs(spans: tuple[TickSpan, ...]) -> list[tuple[int, int]]:
    return [(it.after, it.upto) for it in spans]


def _spans(fields: dict[str, Any]) -> tuple[TickSpan, ...]:
    return tuple([TickSpan(TimeTick(int(a)), TimeTick(int(b))) for a, b in fields["spans"]])


def _tick(number: int | None) -> TimeTick | None:
    return None if number is None else TimeTick(int(number))
