"""A server that was never reached fails each part of a query soon, by its address."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname
from typing import Any

import pyarrow as pa
import pytest

from broker.client import ConnectionLost, Cut
from broker.model.ids import MessageId, TimeTick
from broker.model.stage import StageName
from broker.spark import gateway
from broker.spark.refusals import Failed
from broker.spark.server_options import Server
from broker.spark.sink.sink_options import parse_sink
from broker.spark.sink.staged_rows import stage
from broker.spark.source import message_rows
from broker.spark.source.batch_reader import BatchReader
from broker.spark.source.reading import Span, SpanPartition, read_span
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.broker_process import free_port
from tests.hanging_address import hanging_address

FAILURE_S_MAX, LONG_S = 120, 300.0
"""A busy machine adds many seconds to the time until a failure. So what is proven gets far more."""
V = "by-dev-rootcoord-dml_0_1v0"


def _schema(server: str) -> None:
    declared(parse({"server": server, "subscribe": "a"}, streaming=True))


def _subscribed(server: str, *, streaming: bool) -> Subscribed:
    given = {"server": server, "subscribe": "a"}
    return Subscribed(parse(given, streaming=streaming), message_rows.COLUMNS)


def _read(server: str) -> None:
    span = Span((V,), Cut(TimeTick(0), {V: MessageId(1)}), 5)
    shape = message_rows.MessageShape({}, message_rows.COLUMNS)
    list(read_span(SpanPartition(span, Server(server, "by-dev"), shape, True, False)))


def _write(server: str) -> None:
    options = parse_sink({"server": server, "topic": "a"}, streaming=True)
    stage(options, StageName("query", 0, 0, 0), iter([pa.record_batch({"value": [b"v"]})]))


PARTS: dict[str, Callable[[str], Any]] = {
    "schema": _schema,
    "batch": lambda server: BatchReader(_subscribed(server, streaming=False)).partitions(),
    "stream": lambda server: StreamReader(_subscribed(server, streaming=True)).initialOffset(),
    "task of a query": _read,
    "task of a write": _write,
}
"""Each of them runs in a process of its own."""


def test_a_server_that_was_never_reached_fails_every_part_of_a_query_by_name_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "PATIENCE_S", LONG_S)
    with hanging_address() as (host, port), ThreadPoolExecutor(2 * len(PARTS)) as threads:
        asked = {
            (server, what): threads.submit(part, server)
            for server in (f"127.0.0.1:{free_port()}", f"{host}:{port}")
            for what, part in PARTS.items()
        }
        for (server, what), one in asked.items():
            with pytest.raises((Failed, ConnectionLost)) as failed:
                one.result(FAILURE_S_MAX)
            assert f"no broker at {server}, tried for 5 s" in str(failed.value), what
            assert gethostname() in str(failed.value), what
