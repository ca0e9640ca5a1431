"""Collections that exist already: taken, the same, or another; and a broker without pyarrow."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from broker.client import Client, InvalidArgument, Unrecoverable, connect
from broker.client.errors import AlreadyExists
from tests.broker_process import BrokerProcess
from tests.local_broker import local_broker

pytestmark = pytest.mark.asyncio
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("t", pa.string())])


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Client]:
    async with local_broker(tmp_path, pchannels=4) as broker, connect(broker.address) as client:
        yield client


async def test_a_taken_name_is_an_error_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        made = await log.collections.create("c", shards=2)
        with pytest.raises(AlreadyExists, match="'c' exists already"):
            await log.collections.create("c", shards=2)
        with pytest.raises(InvalidArgument, match="must start with a letter") as raised:
            await log.collections.create("1c")
        assert not isinstance(raised.value, AlreadyExists)
        assert await log.collections.list() == [made]


async def test_with_exist_ok_the_same_definition_is_the_collection_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        plain = await log.collections.create("plain", shards=2, exist_ok=True)
        assert await log.collections.create("plain", shards=2, exist_ok=True) == plain
        rows = await log.collections.create("rows", schema=SCHEMA, exist_ok=True)
        assert await log.collections.create("rows", schema=SCHEMA, exist_ok=True) == rows
        wider = await log.collections.add_columns("rows", pa.schema([("x", pa.float64())]))
        newest = pa.schema([*SCHEMA, ("x", pa.float64())])
        for schema in (SCHEMA, newest):
            assert await log.collections.create("rows", schema=schema, exist_ok=True) == wider


@pytest.mark.parametrize(
    ("shards", "schema", "difference"),
    [
        (3, SCHEMA, "it has 2 shards, not 3"),
        (2, None, "it has a schema, with columns k, t"),
        (2, pa.schema([*SCHEMA, ("y", pa.int8())]), r"column 'y' \(int8\) is not in it"),
        (2, pa.schema([SCHEMA[0], ("t", pa.int8())]), "column 't' is int8, not string"),
        (2, pa.schema([("k", pa.int64()), SCHEMA[1]]), "column 'k' may not be null"),
    ],
)
async def test_with_exist_ok_every_difference_is_named(
    tmp_path: Path, shards: int, schema: pa.Schema | None, difference: str
) -> None:
    async with serving(tmp_path) as log:
        await log.collections.create("rows", shards=2, schema=SCHEMA)
        with pytest.raises(
            AlreadyExists, match=f"'rows' exists already, and is another: .*{difference}"
        ):
            await log.collections.create("rows", shards=shards, schema=schema, exist_ok=True)


async def test_a_collection_of_messages_is_not_one_of_rows(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        await log.collections.create("plain")
        with pytest.raises(AlreadyExists, match="it has no schema"):
            await log.collections.create("plain", schema=SCHEMA, exist_ok=True)


async def test_a_broker_without_pyarrow_says_that_it_is_the_broker(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pyarrow.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join(
        [str(tmp_path / "without"), *os.environ.get("PYTHONPATH", "").split(":")]
    )
    broker = BrokerProcess(tmp_path / "data", inside=("env", f"PYTHONPATH={path}"))
    try:
        async with connect(broker.address) as log:
            with pytest.raises(
                Unrecoverable, match=r"the broker has no pyarrow.*restart the broker"
            ):
                await log.collections.create("rows", schema=SCHEMA)
            await log.collections.create("plain")
            await log.append("plain", b"x")
    finally:
        broker.terminate()
