"""`tidemark backup` and `tidemark restore`: what they print, and the codes they end with."""

import json
import os
import subprocess
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, run_forked

GUARD_S = 120.0


def tidemark(*arguments: str, server: str = "") -> "subprocess.CompletedProcess[str]":
    return run_forked(
        [*COMMAND, *arguments],
        text=True,
        timeout=GUARD_S,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def sentence(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line on stderr of a command that failed."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    return done.stderr


def test_a_backup_is_taken_linked_verified_and_restored(tmp_path: Path) -> None:
    one, two, new = (str(tmp_path / name) for name in ("one", "two", "new"))
    with BrokerProcess(tmp_path / "data", pchannels="1") as broker:
        server = broker.address
        taken = tidemark("backup", one, server=server)
        assert taken.returncode == 0, taken.stderr
        assert taken.stdout.startswith(f"backed up: {one}, cluster by-dev at tick ")
        again = tidemark("backup", two, "--from", one, "--json", server=server)
        fields = json.loads(again.stdout)
        assert (fields["folder"], fields["cluster"]) == (two, "by-dev")
        # Nothing was appended between the two.
        assert 0 < fields["linked_bytes"] < fields["bytes"]
        assert fields["messages"] >= 1
        # Each refusal says what was wrong, with which value.
        assert "is not an empty folder" in sentence(tidemark("backup", two, server=server))
        elsewhere = ("--data-dir", str(tmp_path / "other"))
        assert "is not on this machine" in sentence(
            tidemark("backup", new, *elsewhere, server=server)
        )
        assert "there is no folder" in sentence(
            tidemark("backup", new, "--from", str(tmp_path / "no"), server=server)
        )
    assert not (tmp_path / "new").exists()
    assert tidemark("backup", two, "--verify").stdout.startswith(f"whole: {two}, ")
    assert tidemark("backup", two, "--verify", "--from", one).returncode == 2
    assert tidemark("restore", two, "--data-dir", new).stdout.startswith(f"restored: {new}, ")
    assert "is not an empty folder" in sentence(tidemark("restore", two, "--data-dir", new))
    assert tidemark("restore", two).returncode == 2
    with BrokerProcess(tmp_path / "new", pchannels="1") as broker:
        health = json.loads(tidemark("health", "--json", server=broker.address).stdout)
        assert health["state"] == "healthy"
        assert health["data"] == new


def test_without_a_broker_a_backup_ends_at_once(tmp_path: Path) -> None:
    refused = tidemark("backup", str(tmp_path / "one"), server="127.0.0.1:1")
    assert "cannot reach 127.0.0.1:1" in sentence(refused)
    assert not (tmp_path / "one").exists()
