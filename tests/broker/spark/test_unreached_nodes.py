"""A task tries a node that it never reached for a while: its channels may move on meanwhile."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from anyio import create_task_group
from anyio.from_thread import start_blocking_portal

from broker.client import Client, Cut, StagedPart
from broker.client.errors import NodeUnreachable
from broker.client.net import connection
from broker.model.ids import MessageId, TimeTick
from broker.model.stage import StageName
from broker.process_settings import Settings
from broker.spark.gateway import FIRST_S, RETRY_MAX_S, UNREACHABLE_S, gateway_here
from broker.spark.refusals import Failed
from broker.spark.server_options import Server
from broker.spark.sink import staged_rows
from broker.spark.sink.sink_options import SinkOptions, parse_sink
from broker.spark.sink.staged_rows import commit, stage
from broker.spark.source import message_rows, reading
from broker.spark.source.reading import Span, SpanPartition, read_span
from tests.broker_process import BrokerProcess, free_port
from tests.chaos.storm.proxy import Link
from tests.spark.conftest import run_with_client

FAILURE_S_MAX, LONG_S, GUARD_S = 120, 300.0, 60
"""A busy machine adds many seconds to the time until a failure. So what is proven gets far more."""


class Astray:
    """A broker with one row that advertises an address at which nobody listens."""

    def __init__(self, folder: Path) -> None:
        self.listen, self.given = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        with BrokerProcess(folder, self.listen, pchannels="1") as before:
            run_with_client(self.listen, self._append)
            before.terminate()
        self.process = BrokerProcess(folder, self.listen, pchannels="1", advertise=self.given)

    async def _append(self, log: Client) -> None:
        made = await log.collections.create("trains", shards=1)
        (self.vchannel,) = made.vchannels
        self._tick = int((await log.append("trains", b"read")).tick)

    @property
    def sink(self) -> SinkOptions:
        return sink(self.listen)

    def read(self) -> list[bytes]:
        """As a task of a query does."""
        start = Cut(TimeTick(0), {self.vchannel: MessageId(1)})
        span = Span((self.vchannel,), start, self._tick)
        shape = message_rows.MessageShape({}, message_rows.COLUMNS)
        rows = read_span(SpanPartition(span, Server(self.listen, "by-dev"), shape, True, False))
        return [value.as_py() for it in rows for value in it.column("value")]

    def write(self) -> StagedPart:
        """As a task of a micro-batch does."""
        rows = iter([pa.record_batch({"value": [b"written"]})])
        return stage(self.sink, StageName("query", 0, 0, 0), rows)


def sink(server: str) -> SinkOptions:
    return parse_sink({"server": server, "topic": "trains"}, streaming=True)


@pytest.fixture
def astray(tmp_path: Path) -> Iterator[Astray]:
    made = Astray(tmp_path / "data")
    with made.process:
        yield made
        gateway_here(made.sink.server).close()


def test_a_node_is_tried_until_its_channels_may_have_moved_on_and_not_10_s() -> None:
    last_try_s = connection.UNREACHABLE_S + connection.DIAL_S_MAX
    assert Settings.model_fields["node_lease_s"].default < UNREACHABLE_S < 10 - last_try_s


def test_a_node_that_cannot_be_reached_fails_a_task_soon_by_its_address(
    astray: Astray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reading, staged_rows):
        monkeypatch.setattr(module, "PATIENCE_S", LONG_S)
    parts: list[tuple[Callable[[], Any], type[Exception]]] = [
        (astray.read, Failed), (astray.write, NodeUnreachable),
    ]  # fmt: skip
    with ThreadPoolExecutor(2) as threads:
        for one, kind in [(threads.submit(part), kind) for part, kind in parts]:
            with pytest.raises(kind, match=f"cannot reach {astray.given}.*--advertise"):
                one.result(FAILURE_S_MAX)


@asynccontextmanager
async def served(link: Link) -> AsyncIterator[None]:
    async with create_task_group() as tasks:
        await link.start(tasks)
        yield
        tasks.cancel_scope.cancel()


def test_a_task_goes_on_when_the_node_is_reached_after_a_while(
    astray: Astray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reading, staged_rows):  # the link may be up late
        monkeypatch.setattr(module, "UNREACHABLE_S", GUARD_S)
    tried = Event()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if f"resuming the read after cannot reach {astray.given}" in record.getMessage():
                tried.set()

    noting, log = Noting(), logging.getLogger("tidemark.spark")
    log.addHandler(noting)
    ports = [int(it.rpartition(":")[2]) for it in (astray.given, astray.listen)]
    try:
        with ThreadPoolExecutor(2) as threads, start_blocking_portal() as portal:
            read, written = threads.submit(astray.read), threads.submit(astray.write)
            assert tried.wait(GUARD_S)
            with portal.wrap_async_context_manager(served(Link("late", *ports))):
                assert read.result(GUARD_S) == [b"read"]
                part = written.result(GUARD_S)
                assert [vchannel for vchannel, _ in part.txns] == [astray.vchannel]
                commit(astray.sink, [part], of_stream=True)
    finally:
        log.removeHandler(noting)


def test_a_commit_waits_for_a_server_that_the_tasks_have_reached(tmp_path: Path) -> None:
    """Although the process of the commit may never have reached it."""
    options = sink(f"127.0.0.1:{free_port()}")
    gateway = gateway_here(options.server)
    with ThreadPoolExecutor(1) as threads:
        part = StagedPart("query", 1, 0, 0, ())
        committed = threads.submit(commit, options, [part], of_stream=True)
        with pytest.raises(TimeoutError):
            committed.result(FIRST_S + RETRY_MAX_S)
        with BrokerProcess(tmp_path / "data", options.server.address, pchannels="1"):
            committed.result(GUARD_S)
            gateway.close()
