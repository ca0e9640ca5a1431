"""When consumer groups get a message: `deliver_at` and `ttl_s`, as properties of its batch."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from broker.client.append.outgoing_batch import encode_properties
from broker.client.append.prepare import is_plain
from broker.client.errors import BadTarget, InvalidArgument
from broker.client.message import TICK_LOGICAL_BITS, Message
from broker.client.start_time import tick_at
from broker.model.groups.delivery_times import AHEAD_MS_MAX
from schemas.properties.keys import DELIVER_AT, DELIVER_TTL

DeliverAt = datetime | int
"""A datetime, local without a time zone, or Unix milliseconds."""

_CLOCKS_MS: Final = 60_000
"""So far the clock of the server may be ahead; the server decides by its own."""


def delivery_properties(
    messages: Iterable[Message], deliver_at: DeliverAt | None, ttl_s: float | None
) -> bytes:
    """The properties that these messages get; empty for neither.

    Raises InvalidArgument for times too far ahead, BadTarget for messages that cannot have any.
    """
    if deliver_at is not None or ttl_s is not None:
        _check_delayable(messages)
    properties: dict[str, str] = {}
    if deliver_at is not None:
        properties |= DELIVER_AT.entry(_checked_ms(deliver_at))
    if ttl_s is not None:
        ttl_ms = round(ttl_s * 1000)
        if not 1 <= ttl_ms <= AHEAD_MS_MAX:
            raise InvalidArgument(
                f"ttl_s is {ttl_s}; use 0.001 to {AHEAD_MS_MAX // 1000} (366 days)"
            )
        properties |= DELIVER_TTL.entry(ttl_ms)
    return encode_properties(properties) if properties else b""


def _check_delayable(messages: Iterable[Message]) -> None:
    for each in messages:
        if not is_plain(each):
            raise BadTarget(
                "deliver_at and ttl_s are for plain messages: leave out type, version, header and"
                " barrier_time_tick, or the times"
            )


def _checked_ms(deliver_at: DeliverAt) -> int:
    at_ms: object = deliver_at
    if isinstance(deliver_at, datetime):
        at_ms = tick_at(deliver_at) >> TICK_LOGICAL_BITS
    if not isinstance(at_ms, int) or at_ms < 0:
        raise InvalidArgument(
            f"deliver_at is {deliver_at!r}; use a datetime, or Unix milliseconds from 0 on"
        )
    ahead_ms = at_ms - round(datetime.now(UTC).timestamp() * 1000)
    if ahead_ms > AHEAD_MS_MAX + _CLOCKS_MS:
        raise InvalidArgument(
            f"deliver_at is {deliver_at!r}, {ahead_ms // 86_400_000} days ahead; at most 366"
        )
    return at_ms
