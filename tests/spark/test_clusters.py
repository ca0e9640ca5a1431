"""The source over Spark Connect, and on several executors: the same rows, each once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.broker_process import BrokerProcess
from tests.spark.test_columns import make

SCRIPT = Path(__file__).with_name("clusters.py")
RUN_S_MAX = 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["connect", "cluster"])
def test_each_row_is_read_once_by_another_kind_of_spark(
    broker: BrokerProcess, kind: str, tmp_path: Path
) -> None:
    name = f"by_{kind}"
    make(
        broker.address,
        name,
        [pa.table({"n": list(range(at, at + 20))}) for at in range(0, 200, 20)],
    )
    command = [sys.executable, str(SCRIPT), kind, broker.address, name, str(tmp_path)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S_MAX, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert sorted(n for n, _ in found["batch"]) == list(range(200))
    assert len({vchannel for _, vchannel in found["batch"]}) == 2
    assert sorted(found["streamed"]) == list(range(200))
    assert kind != "cluster" or found["executors"] == 2
