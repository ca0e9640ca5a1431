"""Every Spark program of the pages runs as it stands, twice, in a driver of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.client import Client
from tests.broker_process import BrokerProcess
from tests.pages.blocks import ADDRESS, ROOT, pages_with_spark, spark_blocks
from tests.spark.conftest import WithClient

PROGRAM_S = 240.0
TWICE = """
import sys
from pyspark.sql import SparkSession

for _again in range(2):
    # A session that a program's own getOrCreate finds: no web page, two cores.
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    exec(compile(sys.argv[1], "page", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.parametrize("page", pages_with_spark(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_spark_programs_of_a_page_run_and_run_again(
    page: Path, broker: BrokerProcess, with_client: WithClient, tmp_path: Path
) -> None:
    async def prepare(log: Client) -> None:
        for name in ("trains", "delays"):
            if name not in {it.name for it in await log.collections.list()}:
                await log.collections.create(name, shards=2)
        await log.append("trains", b"IC 5 is late", key=b"IC 5")

    with_client(prepare)
    for block in spark_blocks(page):
        text = block.replace(ADDRESS, broker.address).replace("/data/", f"{tmp_path}/")
        done = subprocess.run(
            [sys.executable, "-c", TWICE, text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
