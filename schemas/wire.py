"""The import place of the hand-written wire functions.

Pure functions between bytes and values. Every one that reads bytes raises only Malformed on invalid
input.
"""

from schemas.answers import (
    Closed,
    ConsumeAnswer,
    Consumed,
    Created,
    ProduceAnswer,
    Produced,
    ProduceFailed,
    VChannelCreated,
    VChannelRefused,
    message,
    produce_request,
    scan_consume_response,
    scan_produce_response,
)
from schemas.encoding.base36 import base36, read_base36, rocksmq_id, rocksmq_id_text
from schemas.encoding.varint import Malformed
from schemas.produced_runs import ScannedRun, scan_produce_requests
from schemas.runs import consume_run, produce_run
from schemas.scan import (
    SERVER_KEYS,
    Close,
    ScannedMessage,
    ScannedProduce,
    TooManyProperties,
    request_id_at,
    scan_message,
    scan_produce_request,
    stored_properties,
)
from schemas.splice import (
    CONSUMER_ID,
    consume_in_txn,
    consume_message,
    consume_time_tick,
    produce_error,
    produce_rate_limit,
    produce_result,
    produce_result_in_txn,
    time_tick_payload,
)

__all__ = [
    "CONSUMER_ID",
    "SERVER_KEYS",
    "Close",
    "Closed",
    "ConsumeAnswer",
    "Consumed",
    "Created",
    "Malformed",
    "ProduceAnswer",
    "ProduceFailed",
    "Produced",
    "ScannedMessage",
    "ScannedProduce",
    "ScannedRun",
    "TooManyProperties",
    "VChannelCreated",
    "VChannelRefused",
    "base36",
    "consume_in_txn",
    "consume_message",
    "consume_run",
    "consume_time_tick",
    "message",
    "produce_error",
    "produce_rate_limit",
    "produce_request",
    "produce_result",
    "produce_result_in_txn",
    "produce_run",
    "read_base36",
    "request_id_at",
    "rocksmq_id",
    "rocksmq_id_text",
    "scan_consume_response",
    "scan_message",
    "scan_produce_request",
    "scan_produce_requests",
    "scan_produce_response",
    "stored_properties",
    "time_tick_payload",
]
