"""Decode and check a consumer's request: where to start, and which messages to deliver."""

from dataclasses import dataclass
from typing import Final

import betterproto2

from broker.core.naming import belongs_to
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.position import (
    DeliverFilter,
    DeliverPolicy,
    FromAll,
    FromLatest,
    MessageTypes,
    StartAfter,
    StartFrom,
    TimeTickGt,
    TimeTickGte,
)
from schemas.generated.milvus.proto import common, streaming
from schemas.wire import Malformed, rocksmq_id

ROCKSMQ: Final = 1


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """A valid request; an empty vchannel means the whole pchannel."""

    vchannel: str
    policy: DeliverPolicy
    filters: tuple[DeliverFilter, ...]
    ignores_pause: bool = False


def consumer_request(
    request: streaming.CreateVChannelConsumerRequest, pchannel: PChannelName
) -> ConsumerRequest:
    """The request as a value.

    Raises Refused: WAL_NAME_MISMATCH for an id of another kind of log, else INVALID_ARGUMENT.
    """
    if request.vchannel and not belongs_to(request.vchannel, pchannel):
        raise invalid_argument(
            f"vchannel {request.vchannel!r} is not on pchannel {pchannel!r} of this stream"
        )
    filters = tuple(_filter(wanted) for wanted in request.deliver_filters)
    policy = _policy(request.deliver_policy)
    return ConsumerRequest(request.vchannel, policy, filters, request.ignore_pause_consumption)


def _policy(policy: streaming.DeliverPolicy | None) -> DeliverPolicy:
    kind, value = betterproto2.which_one_of(policy, "policy") if policy else ("", None)
    match kind:
        case "all":
            return FromAll()
        case "latest":
            return FromLatest()
        case "start_from":
            return StartFrom(_message_id(value))
        case "start_after":
            return StartAfter(_message_id(value))
        case _:
            raise invalid_argument(
                "deliver_policy is not set; use all, latest, start_from or start_after"
            )


def _message_id(value: object) -> MessageId:
    assert isinstance(value, common.MessageId)
    if int(value.WAL_name) != ROCKSMQ:
        raise Refused(
            StreamingCode.WAL_NAME_MISMATCH,
            f"message id {value.id!r} has WAL_name {int(value.WAL_name)}; this log has RocksMQ ids,"
            f" WAL_name {ROCKSMQ}",
        )
    try:
        number = rocksmq_id(value.id)
    except Malformed as error:
        raise invalid_argument(f"message id {value.id!r} cannot be decoded: {error}") from None
    if number < 0:
        raise invalid_argument(f"message id {value.id!r} is negative; ids begin at 0")
    return MessageId(number)


def _filter(wanted: streaming.DeliverFilter) -> DeliverFilter:
    kind, _ = betterproto2.which_one_of(wanted, "filter")
    match kind:
        case "time_tick_gt":
            assert wanted.time_tick_gt is not None
            return TimeTickGt(TimeTick(wanted.time_tick_gt.time_tick))
        case "time_tick_gte":
            assert wanted.time_tick_gte is not None
            return TimeTickGte(TimeTick(wanted.time_tick_gte.time_tick))
        case "message_type":
            assert wanted.message_type is not None
            types = wanted.message_type.message_types
            return MessageTypes(frozenset(int(kind) for kind in types))
        case _:
            raise invalid_argument(
                "a deliver filter is empty; set time_tick_gt, time_tick_gte or message_type"
            )
