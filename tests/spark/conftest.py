"""One Spark session and one broker process for all tests here; both are slow to start."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.client import Client, Message, connect
from tests.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WithClient = Callable[[Callable[[Client], Awaitable[None]]], None]

QUIET = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %m%n
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "log4j2.properties").write_text(QUIET)
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SUBMIT_OPTS=f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}",
    )
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only after the variables are set

    session = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def with_client(broker: BrokerProcess) -> WithClient:
    """Run one async function against the broker."""
    return lambda use: run_with_client(broker.address, use)


@pytest.fixture
def fill(broker: BrokerProcess) -> Callable[[str, Sequence[bytes]], None]:
    """`append` to the broker of all tests."""
    return lambda name, values: append(broker.address, name, values)


def append(address: str, name: str, values: Sequence[bytes]) -> None:
    """Create the collection if it is new (2 shards) and append the values, keyed by themselves."""

    async def use(log: Client) -> None:
        if name not in {known.name for known in await log.collections.list()}:
            await log.collections.create(name, shards=2)
        messages = [Message(value, key=value, properties={"n": "1"}) for value in values]
        await log.append_messages(name, messages, atomic=False)

    run_with_client(address, use)


def run_with_client(address: str, use: Callable[[Client], Awaitable[None]]) -> None:
    """One connection, one function, closed again."""

    async def go() -> None:
        async with connect(address) as log:
            await use(log)

    asyncio.run(go())


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
