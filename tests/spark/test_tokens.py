"""Spark reads and writes a broker that asks who calls, and writes the token down nowhere."""

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import connect
from tests.broker_process import BrokerProcess
from tests.spark.driver import PATHS
from tests.spark.job_of_page import COMMANDS

SCRIPT = Path(__file__).with_name("job_with_token.py")
RUN_S_MAX, COMMAND_S_MAX = 900, 120
SCHEMA = pa.schema([("n", pa.int64())])
ROWS = list(range(100))
REDACTED = re.compile(rb"spark.executorEnv.TIDEMARK_TOKEN[^,]*\(redacted\)")


def planted(name: str) -> str:
    """A token that nothing else contains."""
    return f"tm_{name}_{secrets.token_hex(32)}"


def of_job(broker: BrokerProcess, admin: str, folder: Path) -> str:
    """The token of the user that the commands of the page make."""
    at = ["--server", broker.listen]
    for line in COMMANDS:
        words = shlex.split(line.removeprefix("(umask 077; ").partition(" > ")[0])
        done = subprocess.run(
            [sys.executable, "-m", "broker", *words[1:], *at],
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            env=os.environ | {"TIDEMARK_TOKEN": admin},
            check=False,
        )
        assert done.returncode == 0, done.stderr
    (folder / "job.token").write_text(done.stdout)
    return done.stdout.strip()


def run(server: str, folder: Path, **tokens: str) -> tuple[dict[str, Any], str]:
    """What the script has found, and all that it and Spark said."""
    paths = os.pathsep.join(filter(None, [*PATHS, os.environ.get("PYTHONPATH", "")]))
    given = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), server, str(folder)],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        cwd=folder,
        env=os.environ | given | tokens,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    return json.loads(ended.stdout.splitlines()[-1]), ended.stdout + ended.stderr


def written(folder: Path, application: str) -> Iterator[tuple[Path, bytes]]:
    """All files of Spark: its logs, events, checkpoints, tables, and those of the executor."""
    import pyspark  # noqa: PLC0415 - not everywhere installed

    work = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "work" / application
    for root in (folder, work):
        assert root.is_dir(), root
        for file in root.rglob("*"):
            if file.is_file() and file.suffix != ".token":
                yield file, file.read_bytes()


@pytest.mark.slow
async def test_a_job_with_the_grants_of_the_page_runs_and_its_token_is_written_nowhere(
    tmp_path: Path,
) -> None:
    admin, reader, wrong = planted("admin"), planted("reader"), planted("wrong")
    users, folder = tmp_path / "users.toml", tmp_path / "spark"
    users.write_text(
        '[roles.copied]\ngrants = ["consume:collection:copies"]\n'
        f'[users.root]\nroles = ["admin"]\ntoken = "{admin}"\n'
        f'[users.reader]\nroles = ["copied"]\ntoken = "{reader}"\n'
    )
    users.chmod(0o600)
    folder.mkdir()
    settings = {"auth": "on", "auth_bootstrap": str(users), "pchannels": "2"}
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        job = of_job(broker, admin, folder)
        async with connect(broker.listen, token=admin) as log:
            for name in ("flights", "copies"):
                await log.collections.create(name, shards=2, schema=SCHEMA)
            await log.append_arrow("flights", pa.table({"n": ROWS}, schema=SCHEMA), key="n")
        (file := folder / "reader.token").write_text(f"{reader}\n")
        tokens = {"JOB_TOKEN": job, "TIDEMARK_TOKEN_FILE": str(file), "WRONG_TOKEN": wrong}
        found, said = run(broker.listen, folder, **tokens)
        async with connect(broker.listen, token=admin) as log:
            (cursor,) = await log.cursors.list()
            assert cursor.name == "nightly"
    assert found["by_option"] == found["by_table"] == ROWS
    assert found["by_environment"] == sorted([*ROWS, 7])
    errors = found["errors"]
    for which in ("wrong", "wrong write"):
        assert "[TIDEMARK_NOT_AUTHENTICATED]" in errors[which]
        assert "the token is not known, or it has expired" in errors[which]
    assert "[TIDEMARK_PERMISSION_DENIED]" in errors["denied"], errors
    assert "did you mean token?" in errors["misspelled"]
    assert "[TIDEMARK_BAD_OPTION] option 'tokenFile'" in errors["no file"]
    names = {"job": job, "reader": reader, "wrong": wrong}
    texts = [*written(folder, found["application"]), (Path("stdout and stderr"), said.encode())]
    assert {"events", "checkpoint"} <= {
        it.relative_to(folder).parts[0] for it, _ in texts if it.is_relative_to(folder)
    }
    assert any(b"SparkListenerSQLExecutionStart" in text for _, text in texts)
    assert any(REDACTED.search(text) for _, text in texts)
    secret = {name: it.split("_", 2)[2].encode() for name, it in names.items()}
    assert not [
        f"{name} in {file}: {line!r}"
        for file, text in texts
        for line in text.splitlines()
        for name, it in secret.items()
        if it in line
    ]
