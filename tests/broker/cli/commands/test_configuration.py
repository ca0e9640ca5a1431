"""`tidemark config` against a real broker: what it prints, and the codes it ends with."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cli.test_commands import tidemark
from tests.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("config") / "data"
    with BrokerProcess(data, pchannels="1", retention_ms="5") as broker:
        yield broker.address


def test_a_setting_is_set_compared_and_unset(server: str) -> None:
    first = tidemark("config", "diff", server=server).stdout
    assert "no setting is stored" in first
    assert "not in effect" not in first
    done = tidemark("config", "set", "retention_ms", "9000", server=server)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("retention_ms set at revision ")
    diff = tidemark("config", "diff", server=server).stdout.splitlines()
    assert diff[0].split() == ["setting", "started", "with", "stored", "in", "force", "revision"]
    assert diff[1].split()[:4] == ["retention_ms", "5", "9000", "9000"]
    every = tidemark("config", "diff", "--all", "--json", server=server)
    names = [it["name"] for it in json.loads(every.stdout)["settings"]]
    assert {"retention_ms", "tick_interval_ms"} <= set(names)
    (entry,) = json.loads(tidemark("config", "get", "--json", server=server).stdout)
    stale = str(entry["revision"] - 1)
    late = tidemark("config", "unset", "retention_ms", "--if-revision", stale, server=server)
    assert late.returncode == 1
    assert "read it again" in late.stderr
    assert tidemark("config", "unset", "retention_ms", server=server).returncode == 0
    assert tidemark("config", "get", server=server).stdout == "nothing is stored\n"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retention_ms", "soon", "must be a valid integer"),
        ("pchannels", "3", "restart"),
        ("retention_m", "3", "did you mean 'retention_ms'"),
        ("app/../x", "3", "'..'"),
    ],
)
def test_a_wrong_change_is_one_sentence_and_code_1(
    server: str, key: str, value: str, says: str
) -> None:
    refused = tidemark("config", "set", key, value, server=server)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_file_is_loaded_whole_or_not_at_all(server: str, tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text("app:\n  colour: blue\n  sizes: [1, 2]\npchannels: 3\n")
    refused = tidemark("config", "load", str(path), server=server)
    assert refused.returncode == 1
    assert f"{path}:4: setting pchannels" in refused.stderr
    assert tidemark("config", "get", "app/colour", server=server).returncode == 1
    path.write_text("app:\n  colour: blue\n  sizes: [1, 2]\n")
    assert tidemark("config", "load", str(path), server=server).returncode == 0
    shown = tidemark("config", "get", "--prefix", "app", server=server).stdout.splitlines()
    assert [line.split()[:2] for line in shown] == [
        ["key", "value"],
        ["/app/colour", "blue"],
        ["/app/sizes", "[1,"],
    ]
