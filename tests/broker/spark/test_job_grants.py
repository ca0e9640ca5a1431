"""The grants that the page gives a job: with all of them it works, and each of them is needed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import Client, StagedPart, connect
from broker.client.errors import PermissionDenied
from broker.model.stage import StageName
from broker.spark.refusals import Failed
from broker.spark.server_options import Server
from broker.spark.sink.sink_options import parse_sink
from broker.spark.sink.staged_rows import commit, stage
from broker.spark.source import progress_report
from broker.spark.source.reading import SpanPartition, read_span
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.local_broker import local_broker
from tests.spark.job_of_page import GRANTS, JOB

SCHEMA = pa.schema([("n", pa.int64())])
ADMIN = f"tm_admin_{'s' * 43}"
USERS = f'[users.root]\nroles = ["admin"]\ntoken = "{ADMIN}"\n'
BARRIER = "group:cluster:*"


@pytest.fixture(autouse=True)
def reports_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late report is only logged, as a denied one is, and a busy machine reports late."""
    monkeypatch.setattr(progress_report, "REPORT_S", 60.0)


@asynccontextmanager
async def world(folder: Path, grants: list[str]) -> AsyncIterator[tuple[Client, Server]]:
    """A broker with rows in `flights`, an administrator, and a server with the job's token."""
    users = folder / "users.toml"
    users.write_text(USERS)
    users.chmod(0o600)
    given = {"auth": "on", "auth_bootstrap": users}
    async with (
        local_broker(folder / "data", pchannels=2, **given) as broker,
        connect(broker.address, token=ADMIN) as log,
    ):
        for name in ("flights", "copies"):
            await log.collections.create(name, shards=2, schema=SCHEMA)
        await log.append_arrow("flights", pa.table({"n": [1, 2, 3]}), key="n")
        await log.auth.add_role(JOB, grants)
        await log.auth.add_user(JOB, [JOB])
        made = await log.auth.add_token(JOB)
        yield log, Server(broker.address, "by-dev", token=made.text)


def reading(server: Server) -> list[int]:
    """What the driver and the tasks of a streaming query do; the cursor moves."""
    given = {"server": server.address, "token": server.token, "subscribe": "flights"}
    options = parse(given | {"startingOffsets": "earliest", "cursor": "nightly"}, streaming=True)
    subscribed = Subscribed(options, declared(options))
    reader = StreamReader(subscribed)
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found: list[int] = []
        for each in reader.partitions(start, end):
            assert isinstance(each, SpanPartition)
            for rows in read_span(each):
                found += rows["n"].to_pylist()
        reader.commit(end)
        return found
    finally:
        reader.stop()


def writing(server: Server, rows: list[int], batch: int) -> None:
    """What a task and the driver do with a micro-batch."""
    given = {"server": server.address, "token": server.token, "topic": "copies"}
    options = parse_sink(given, streaming=True)
    part: StagedPart = stage(
        options,
        StageName("app", batch, 0, 0),
        iter([pa.record_batch({"n": pa.array(rows, pa.int64())})]),
    )
    commit(options, [part], of_stream=True)


async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.to_thread(work, *given)


async def test_a_job_reads_writes_and_moves_its_cursor_with_the_grants_of_the_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, GRANTS) as (log, server):
        assert sorted(await in_thread(reading, server)) == [1, 2, 3]
        await in_thread(writing, server, [1, 2, 3], 0)
        await in_thread(writing, server, [], 1)
        batches = [it async for it in log.read_arrow("copies", start="all", until="now")]
        assert sorted(pa.concat_arrays([it["n"] for it in batches]).to_pylist()) == [1, 2, 3]
        assert [it.name for it in await log.cursors.list()] == ["nightly"]
    told = [it.getMessage() for it in caplog.records if it.name == "tidemark.spark"]
    assert len(told) == 1, told
    assert "barrier 'nightly' gets no reports of this query" in told[0]
    assert BARRIER in told[0]


@pytest.mark.parametrize("grant", GRANTS)
async def test_without_one_of_them_something_is_denied(
    tmp_path: Path, grant: str, caplog: pytest.LogCaptureFixture
) -> None:
    denied: list[str] = []
    async with world(tmp_path, [it for it in GRANTS if it != grant]) as (_, server):
        for work in (
            lambda: reading(server),
            lambda: writing(server, [1], 0),
            lambda: writing(server, [], 1),
        ):
            try:
                await in_thread(work)
            except (PermissionDenied, Failed) as error:
                denied.append(str(error))
    # A cursor that cannot be moved never ends a query; the log says so.
    denied += [it.getMessage() for it in caplog.records if "cannot report" in it.getMessage()]
    assert len(denied) == 1, denied
    assert grant.partition(":")[0] in denied[0]


async def test_a_job_that_may_use_barriers_reports_to_one(tmp_path: Path) -> None:
    async with world(tmp_path, [*GRANTS, BARRIER]) as (log, server):
        await in_thread(reading, server)
        assert "nightly" in {it.name for it in await log.barriers.list()}
