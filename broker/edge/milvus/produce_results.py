"""Encode the answer to each produced message.

A ManualFlush is answered with the list of flushed segments, even when it is empty: Milvus's client
requires it.
"""

from collections.abc import Sequence

from broker.model.failure import Refusal
from broker.model.message import Appended, AppendedFlush, AppendedInTxn, MessageType, NewMessage
from broker.node.appender_messages import PlacedApart, RunOutcome
from schemas.encoding.frames import frames
from schemas.generated.google.protobuf import Any
from schemas.generated.milvus.proto import common, messages, streaming
from schemas.message_bytes import encoded
from schemas.properties.txn_context import TxnContext
from schemas.wire import (
    produce_error,
    produce_result_in_txn,
    produce_run,
    rocksmq_id_text,
)

FLUSHED = "type.googleapis.com/milvus.proto.messages.ManualFlushExtraResponse"


def produce_answers(request_ids: Sequence[int], message: NewMessage, outcome: RunOutcome) -> bytes:
    """A ProduceResponse with its gRPC framing for the message, or for each message of a run."""
    if isinstance(outcome, PlacedApart):
        each = zip(request_ids, outcome.outcomes, strict=True)
        return b"".join([produce_answers((it,), message, landed) for it, landed in each])
    if type(outcome) is Appended and message.type != MessageType.MANUAL_FLUSH:
        return produce_run(request_ids, outcome.id, outcome.tick, outcome.last_confirmed_id)
    return frames([_answer(it, outcome) for it in request_ids])


def _answer(request_id: int, outcome: Appended | Refusal) -> bytes:
    if isinstance(outcome, Refusal):
        return produce_error(request_id, outcome.code, outcome.cause)
    if isinstance(outcome, AppendedInTxn):
        return produce_result_in_txn(
            request_id,
            outcome.id,
            outcome.tick,
            outcome.last_confirmed_id,
            TxnContext(outcome.txn.id, outcome.txn.keepalive_ms).encode(),
        )
    return _flush_result(request_id, outcome)


def append_result(landed: Appended) -> streaming.ProduceMessageResponseResult:
    """Where a copy landed: the answer to a broadcast has one for each vchannel."""
    return streaming.ProduceMessageResponseResult(
        id=_message_id(landed.id),
        timetick=landed.tick,
        last_confirmed_id=_message_id(landed.last_confirmed_id),
    )


def _flush_result(request_id: int, landed: Appended) -> bytes:
    result = append_result(landed)
    flushed: list[int] = [*landed.segment_ids] if isinstance(landed, AppendedFlush) else []
    extra = encoded(messages.ManualFlushExtraResponse(segment_ids=flushed))
    result.extra = Any(type_url=FLUSHED, value=extra)
    response = streaming.ProduceMessageResponse(request_id=request_id, result=result)
    return encoded(streaming.ProduceResponse(produce=response))


def _message_id(number: int) -> common.MessageId:
    return common.MessageId(id=rocksmq_id_text(number), WAL_name=common.WalName(1))
