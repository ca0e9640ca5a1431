"""Serves the table of metrics over HTTP on loopback, in Prometheus's formats.

Each connection is for one request. Values are read on the event loop, where they change, and
encoded on a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from anyio import to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from broker.core.histogram import Histogram
from broker.metrics import table
from broker.metrics.view import ActorCounts, Sources, View

HOST: Final = "127.0.0.1"
PATH: Final = "/metrics"
HEAD_BYTES_MAX: Final = 16 * 1024
REQUEST_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 16


class Exposition:
    """The metrics of one process, as text."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._counts = ActorCounts()

    def families(self) -> list[Metric]:
        """Every metric with its present samples; metrics without samples are included."""
        view = View(self._sources, self._counts)
        return [_family(metric, view) for metric in table.METRICS]

    async def text(self, accept: str) -> tuple[bytes, str]:
        """The response body for an Accept header, and its content type."""
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Collected(self.families()))
        return await to_thread.run_sync(encode, registry), content_type


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(metric: table.Metric, view: View) -> Metric:
    name = table.PREFIX + metric.name
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, value in metric.read(view):
            assert isinstance(value, Histogram)
            buckets = [(_bound(bound), count) for bound, count in value.buckets()]
            histograms.add_metric(labels, buckets, value.sum)
        return histograms
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=metric.labels)
    for labels, value in metric.read(view):
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


@asynccontextmanager
async def exposed(sources: Sources, port: int) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. Raises OSError when it cannot listen."""
    exposition, busy = Exposition(sources), set[asyncio.StreamWriter]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(busy) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        busy.add(writer)
        # So that drain() returns only when everything was handed to the kernel.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                await _answer(reader, writer, exposition)
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            pass  # the peer has gone, or does not speak HTTP
        finally:
            busy.discard(writer)
            # A peer that does not read: close() would keep the connection until it does.
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    server = await asyncio.start_server(handle, HOST, port, limit=HEAD_BYTES_MAX)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in tuple(busy):
            writer.transport.abort()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exposition: Exposition
) -> None:
    # Any bytes decode as Latin-1, so rubbish fails at the split below and nowhere else.
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request, *lines = head.split("\r\n")
    method, path, _ = request.split(" ", 2)
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    body, content_type, status = b"", "text/plain; charset=utf-8", "200 OK"
    if path.partition("?")[0] != PATH:
        status, body = "404 Not Found", f"the metrics are at {PATH}\n".encode()
    elif method not in ("GET", "HEAD"):
        status, body = "405 Method Not Allowed", b"metrics are read with GET\n"
    else:
        body, content_type = await exposition.text(headers.get("accept", ""))
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}"]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + (b"" if method == "HEAD" else body))
    await writer.drain()
