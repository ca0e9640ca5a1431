"""Changes of groups, as they are stored: the bodies of records of kind GROUP_CHANGE.

JSON, because a person may have to read it in an emergency; a change holds many messages.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, assert_never

from broker.model.groups.consumer_group import DeliveryLimit, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from broker.unreadable import UNREADABLE

SPANS_MAX: Final = 4096
"""Of one change."""


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """A new group. `floor` None: it begins behind this record's own tick."""

    name: str
    lease_ms: int
    floor: TimeTick | None
    limit: DeliveryLimit | None = None
    mode: GroupMode = GroupMode.SHARED


@dataclass(frozen=True, slots=True)
class GroupAltered:
    """The group has other leases and another limit from now on."""

    name: str
    lease_ms: int
    limit: DeliveryLimit | None


@dataclass(frozen=True, slots=True)
class MessagesTried:
    """The messages of these spans are about to be delivered, the `times`-th time."""

    name: str
    spans: tuple[TickSpan, ...]
    times: int


@dataclass(frozen=True, slots=True)
class MessagesDying:
    """The messages of these spans go to the dead letters, and to no member any more."""

    name: str
    spans: tuple[TickSpan, ...]
    cause: str
    times: int


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


GroupChange = (
    GroupCreated
    | GroupAltered
    | MessagesTried
    | MessagesDying
    | MessagesAcked
    | AckedInTxn
    | GroupSought
    | GroupDropped
)


_JSON = json.JSONEncoder(separators=(",", ":"))
"""Made once: `json.dumps` makes one for each call."""

_NUMBER: Final = rb"(0|[1-9][0-9]{0,19})"
_ONE_ACKED: Final = re.compile(
    rb'\{"group":"([^"\\\x00-\x1f\x7f-\xff]*)","change":"acked","spans":\[\[%b,%b\]\]\}'
    % (_NUMBER, _NUMBER)
)
"""What a member that settles one by one makes: read in 1.1 us, by the JSON module in 2.8."""


class UnreadableChange(Exception):
    """The body is damaged, or a later release wrote it."""


def encode_change(change: GroupChange) -> bytes:
    """The body of the record."""
    if isinstance(change, MessagesAcked):
        return _acked(change)
    fields: dict[str, Any] = {"group": change.name}
    match change:
        case GroupCreated(_, lease_ms, floor, limit, mode):
            fields |= {"change": "created", "lease_ms": lease_ms, "floor": floor}
            fields |= {"limit": limit_fields(limit)} if limit else {}
            # Not "created" with a mode beside it: an earlier release would share the messages.
            ordered = {"change": "created in order", "by": mode}
            fields |= {} if mode is GroupMode.SHARED else ordered
        case GroupAltered(_, lease_ms, limit):
            fields |= {"change": "altered", "lease_ms": lease_ms, "limit": limit_fields(limit)}
        case MessagesTried(_, spans, times):
            fields |= {"change": "tried", "spans": span_pairs(spans), "times": times}
        case MessagesDying(_, spans, cause, times):
            fields |= {"change": "dying", "spans": span_pairs(spans)}
            fields |= {"cause": cause, "times": times}
        case AckedInTxn(_, txn, spans, times):
            # Not "acked" with a transaction beside it: an earlier release would apply that at once.
            fields |= {"change": "acked in txn", "txn": txn, "spans": span_pairs(spans)}
            fields["times"] = times
        case GroupSought(_, floor):
            fields |= {"change": "sought", "floor": floor}
        case GroupDropped():
            fields |= {"change": "dropped"}
        case _:
            assert_never(change)
    return _JSON.encode(fields).encode()


def decode_change(body: bytes) -> GroupChange:
    """The change in a record's body. Raises UnreadableChange."""
    if one := _ONE_ACKED.fullmatch(body):
        span = TickSpan(TimeTick(int(one[2])), TimeTick(int(one[3])))
        return MessagesAcked(one[1].decode(), (span,))
    try:
        return _decoded(json.loads(body))
    except UNREADABLE as error:
        raise UnreadableChange(f"a change of a group is damaged: {error!r}") from error


def _acked(change: MessagesAcked) -> bytes:
    """As the JSON module would: these are nearly all changes, and their members wait for them."""
    spans = ",".join([f"[{it.after},{it.upto}]" for it in change.spans])
    group = _JSON.encode(change.name)
    return f'{{"group":{group},"change":"acked","spans":[{spans}]}}'.encode()


def _decoded(fields: dict[str, Any]) -> GroupChange:
    name = str(fields["group"])
    match fields["change"]:
        case "created":
            limit = read_limit(fields.get("limit"))
            return GroupCreated(name, int(fields["lease_ms"]), _tick(fields["floor"]), limit)
        case "created in order":
            limit, mode = read_limit(fields.get("limit")), GroupMode(fields["by"])
            return GroupCreated(name, int(fields["lease_ms"]), _tick(fields["floor"]), limit, mode)
        case "altered":
            return GroupAltered(name, int(fields["lease_ms"]), read_limit(fields["limit"]))
        case "tried":
            return MessagesTried(name, read_spans(fields["spans"]), int(fields["times"]))
        case "dying":
            spans, cause = read_spans(fields["spans"]), str(fields["cause"])
            return MessagesDying(name, spans, cause, int(fields["times"]))
        case "acked":
            return MessagesAcked(name, read_spans(fields["spans"]))
        case "acked in txn":
            txn, times = TxnId(int(fields["txn"])), int(fields["times"])
            return AckedInTxn(name, txn, read_spans(fields["spans"]), times)
        case "sought":
            return GroupSought(name, _tick(fields["floor"]))
        case "dropped":
            return GroupDropped(name)
        case other:
            raise UnreadableChange(f"a later release changed a group: {other!r} is not known")


def span_pairs(spans: Iterable[TickSpan]) -> list[tuple[int, int]]:
    """Spans as they are stored."""
    return [(it.after, it.upto) for it in spans]


def read_spans(pairs: Iterable[tuple[int, int]]) -> tuple[TickSpan, ...]:
    """Stored spans; raises what bad fields raise."""
    return tuple([TickSpan(TimeTick(int(a)), TimeTick(int(b))) for a, b in pairs])


def limit_fields(limit: DeliveryLimit | None) -> dict[str, Any] | None:
    """A limit as it is stored."""
    if limit is None:
        return None
    return {"max": limit.deliveries_max, "vchannel": limit.vchannel, "origin": limit.origin}


def read_limit(fields: dict[str, Any] | None) -> DeliveryLimit | None:
    """A stored limit; raises what bad fields raise."""
    if fields is None:
        return None
    return DeliveryLimit(int(fields["max"]), str(fields["vchannel"]), str(fields["origin"]))


def _tick(number: int | None) -> TimeTick | None:
    return None if number is None else TimeTick(int(number))
