"""Spans of message ids as Spark partitions: planned with a check for loss, read as Arrow batches.

Used by the streaming and the batch reader alike. Next: broker/spark/rows.py
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from broker.spark import offsets
from broker.spark.gateway import Gateway
from broker.spark.offsets import DataLoss, Offset, Span
from broker.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

    from broker.client import Received

ROWS_PER_BATCH_MAX = 8192
log = logging.getLogger("tidemark.spark")


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """All a worker needs to read one span by itself."""

    span: Span
    server: str
    cluster: str
    include_properties: bool
    fail_on_data_loss: bool


def plan(gateway: Gateway, options: Options, start: Offset, end: Offset) -> list[InputPartition]:
    """One partition for each vchannel that moves. Raises DataLoss when a span cannot be whole."""
    wanted = offsets.spans(start, end)
    vchannels = sorted({vchannel for shards in end.values() for vchannel in shards})
    held = gateway.held(vchannels) if vchannels else {}
    lost = offsets.losses(start, end, held)
    if lost and options.fail_on_data_loss:
        raise DataLoss(lost)
    for sentence in lost:
        log.warning("tidemark: data loss accepted: %s", sentence)
    clamped = (_clamp(span, held[span.vchannel]) for span in wanted if span.vchannel in held)
    return [
        SpanPartition(
            span,
            options.server,
            options.cluster,
            options.include_properties,
            options.fail_on_data_loss,
        )
        for span in clamped
        if span.end > span.start
    ]


def _clamp(span: Span, held: offsets.Held) -> Span:
    return replace(span, start=max(span.start, held.first_id), end=min(span.end, held.next_id))


def read_span(partition: SpanPartition) -> Iterator["pa.RecordBatch"]:
    """Record batches of one span, exactly its ids, in order.

    A transaction belongs, whole, to the span that holds its commit.
    """
    with Gateway(partition.server, partition.cluster) as gateway:
        for messages in _messages(gateway, partition):
            yield _rows(partition, messages)


def _messages(gateway: Gateway, partition: SpanPartition) -> Iterator[Sequence["Received"]]:
    from broker.client import OutOfRange

    span = partition.span
    while True:
        try:
            for batch in gateway.read(span):
                if batch.messages:
                    yield from _pieces(batch.messages)
            return
        except OutOfRange as error:
            if partition.fail_on_data_loss:
                raise DataLoss([f"{span.vchannel}: {error}"]) from error
            if not span.start < error.first_id < span.end:
                return
            log.warning("tidemark: data loss accepted: %s", error)
            span = replace(span, start=error.first_id)


def _pieces(messages: Sequence["Received"]) -> Iterator[Sequence["Received"]]:
    for at in range(0, len(messages), ROWS_PER_BATCH_MAX):
        yield messages[at : at + ROWS_PER_BATCH_MAX]


def _rows(partition: SpanPartition, messages: Sequence["Received"]) -> "pa.RecordBatch":
    from broker.spark.rows import record_batch

    span = partition.span
    return record_batch(
        messages,
        None if span.name == span.vchannel else span.name,
        include_properties=partition.include_properties,
    )
