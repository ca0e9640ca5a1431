"""Spark Connect, and several executors: the same rows, each once, also when one is killed."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import Client
from tests.broker_process import BrokerProcess, free_port
from tests.spark.conftest import WithClient
from tests.spark.driver import PATHS
from tests.spark.test_columns import make

SCRIPT = Path(__file__).with_name("clusters.py")
RUN_S_MAX = 900
OURS = ("actors", "broker", "schemas", "pyspark_tidemark", "tidemark", "__editable__")
"""How what Tidemark installs is called."""


def run(
    kind: str, broker: BrokerProcess, name: str, folder: Path, **environment: str
) -> dict[str, Any]:
    """What the script has found. `environment`: what differs from this process's."""
    paths = os.pathsep.join(filter(None, [*PATHS, os.environ.get("PYTHONPATH", "")]))
    given = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
    given["CONNECT_PORT"] = str(free_port())
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), kind, broker.address, name, str(folder)],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        env=os.environ | given | environment,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def python_without_tidemark(folder: Path) -> str:
    """An environment with all packages of this one but Tidemark."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith(OURS):
            (packages / path.name).symlink_to(path)
    return str(folder / "bin" / "python")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["connect", "cluster"])
def test_each_row_is_read_and_written_once_by_another_kind_of_spark(
    broker: BrokerProcess, kind: str, with_client: WithClient, tmp_path: Path
) -> None:
    """On the cluster an executor is killed in the middle of a task."""
    name = f"by_{kind}"
    make(
        broker.address,
        name,
        [pa.table({"n": list(range(at, at + 20))}) for at in range(0, 200, 20)],
    )

    async def copy(log: Client) -> None:
        await log.collections.create(f"copied_{kind}", schema=pa.schema([("n", pa.int64())]))

    with_client(copy)
    found = run(kind, broker, name, tmp_path)
    assert sorted(n for n, _ in found["batch"]) == list(range(200))
    assert len({vchannel for _, vchannel in found["batch"]}) == 2
    assert sorted(found["streamed"]) == list(range(200))
    assert kind != "cluster" or found["executors"] == 2


@pytest.mark.slow
def test_an_executor_without_tidemark_says_so_in_one_line(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make(broker.address, "by_bare", [pa.table({"n": [1, 2, 3]})])
    bare = python_without_tidemark(tmp_path / "bare")
    python = tmp_path / "python"
    # Spark starts one and the same command on the driver and on the executors.
    with_tidemark = f'export PYTHONPATH="$PYTHONPATH:{os.pathsep.join(PATHS)}"'
    python.write_text(f'#!/bin/sh\n[ -n "$ON_DRIVER" ] && {with_tidemark}\nexec {bare} "$@"\n')
    python.chmod(0o755)
    given = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": "", "ON_DRIVER": "yes"}
    found = run("bare", broker, "by_bare", tmp_path, **given)
    (line,) = {it for it in found["error"].splitlines() if "[TIDEMARK_NOT_INSTALLED]" in it}
    assert f"the Python of this executor, {bare}, has no package 'tidemark'" in line
    assert "install Tidemark there (pip install '.[spark]' in Tidemark's folder)" in line
