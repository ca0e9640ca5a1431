"""Where a command connects to: flags, profiles, environment and file, in this order."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.cli.client_connection import connection, profiles_path
from broker.cli.counted import counted
from broker.cli.global_options import choose, first
from broker.cli.main import app
from broker.client import Tls
from broker.config_file import BadConfig
from tests.broker_process import BrokerProcess

ROOT = Path(__file__).parents[3]
PROFILES = """
[prod]
server = "prod:1"
cluster = "blue"
append_s = 30
[staging]
server = "staging:1"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a user's folder of their own."""
    for name in ("SERVER", "PROFILE", "CONFIG", "CLUSTER", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"TIDEMARK_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    choose(None, None)
    path = profiles_path()
    assert path == tmp_path / "xdg" / "tidemark" / "profiles.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES)
    return tmp_path


def test_each_place_goes_before_the_next_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection().server == "127.0.0.1:19531"
    (home / "tidemark.toml").write_text("[client]\nserver = 'file:1'\ncall_s = 3\n")
    assert connection().server == "file:1"
    monkeypatch.setenv("TIDEMARK_PROFILE", "staging")
    assert connection().server == "staging:1"
    monkeypatch.setenv("TIDEMARK_SERVER", "env:1")
    assert connection().server == "env:1"
    monkeypatch.setenv("TIDEMARK_CLUSTER", "green")
    assert connection().cluster == "green"
    choose("prod", None)
    assert (connection().server, connection().cluster) == ("prod:1", "blue")
    found = connection("flag:1")
    assert (found.server, found.cluster) == ("flag:1", "blue")
    assert (found.deadlines.append_s, found.deadlines.call_s) == (30, 3)
    assert found.origins["server"] == "--server"
    assert found.origins["append_s"] == "profile prod"
    assert found.origins["call_s"] == "[client] of tidemark.toml"
    assert found.origins["open_s"] == "default"


def test_tls_comes_from_the_first_place_that_says_anything_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection().tls is None
    (home / "tidemark.toml").write_text("[client]\ntls = true\n")
    assert connection().tls == Tls()
    (home / "tidemark.toml").write_text("[client]\ntls = false\ntls_ca = 'file.pem'\n")
    assert connection().tls is None
    monkeypatch.setenv("TIDEMARK_TLS_CA", "env.pem")
    assert connection().tls == Tls("env.pem")
    monkeypatch.setenv("TIDEMARK_TLS_CERT", "env.cert")
    with pytest.raises(BadConfig, match=r"tls_cert \(TIDEMARK_TLS_CERT\) is set without tls_key"):
        connection()
    monkeypatch.setenv("TIDEMARK_TLS_KEY", "env.key")
    assert connection().tls == Tls("env.pem", "env.cert", "env.key")
    profiles_path().write_text("[plain]\ntls = false\n")
    choose("plain", None)
    assert connection().tls is None


def test_an_unknown_profile_is_answered_with_the_nearest_one(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"no profile 'prd' in .*; did you mean 'prod'"):
        connection(profile="prd")
    with pytest.raises(BadConfig, match="there are prod, staging"):
        connection(profile="x")
    profiles_path().unlink()
    with pytest.raises(BadConfig, match=r"add a table to it: \[prod\] with server"):
        connection(profile="prod")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[prod]\nadress = 'a:1'", "'adress' in \\[prod\\] of .* is not a setting of a client"),
        ("[prod]\nserver = 'a'", "must be HOST:PORT, or several with commas .*, not 'a'"),
        ("[prod]\ntls = 1", "tls in .* must be true or false, not 1"),
        ("prod = 1", r"\[prod\] of .* must be a table of settings, not 1"),
        ("= 1", "is not valid TOML"),
    ],
)
def test_a_wrong_file_of_profiles_is_named(content: str, complaint: str) -> None:
    profiles_path().write_text(content)
    with pytest.raises(BadConfig, match=complaint):
        connection(profile="prod")


def test_an_address_that_is_none_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfig, match="'here' is not a server address"):
        connection("here")
    monkeypatch.setenv("TIDEMARK_SERVER", "there")
    with pytest.raises(BadConfig, match="TIDEMARK_SERVER must be HOST:PORT, not 'there'"):
        connection()


def test_profiles_are_listed_and_shown() -> None:
    run = CliRunner().invoke
    listed = json.loads(run(app, ["profile", "list", "--json"]).output)
    assert [it["name"] for it in listed] == ["prod", "staging"]
    assert "prod:1" in run(app, ["profile", "list"]).output
    shown = json.loads(run(app, ["profile", "show", "prod", "--json"]).output)
    assert shown["server"] == {"value": "prod:1", "from": "profile prod"}
    assert shown["connect_s"] == {"value": 5.0, "from": "default"}
    assert "profile staging" in run(app, ["--profile", "staging", "profile", "show"]).output
    assert run(app, ["profile", "show", "prd"]).exit_code == 2


def test_global_options_may_stand_behind_the_command() -> None:
    moved = first(["serve", "--config", "x", "--nodes", "2", "--profile=p", "--", "--config"])
    assert moved == ["--config", "x", "--profile=p", "serve", "--nodes", "2", "--", "--config"]
    assert first(["top", "--profile"]) == ["--profile", "top"]


def test_one_thing_is_not_called_things() -> None:
    assert counted(1, "message") == "1 message"
    assert [counted(it, "message") for it in (0, 2500)] == ["0 messages", "2,500 messages"]


def test_commands_speak_to_the_cluster_that_a_file_names(home: Path) -> None:
    file = home / "tidemark.toml"
    file.write_text("cluster = 'blue'\npchannels = 1\n[client]\ncluster = 'blue'\n")
    with BrokerProcess(home / "data", config=str(file)) as broker:
        asked = [sys.executable, "-m", "broker", "channels", "--server", broker.address]
        run = partial(subprocess.run, capture_output=True, text=True, timeout=60, check=False)
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        told = run(asked, cwd=home, env=environment)
        assert "blue-rootcoord-dml_0" in told.stdout, told.stderr
        file.unlink()
        other = run(asked, cwd=home, env=environment)
        assert (other.returncode, other.stdout) == (1, "")
        assert other.stderr.startswith("tidemark: this is cluster 'blue'")
        named = run([*asked, "--profile", "prod"], cwd=home, env=environment)
        assert "blue-rootcoord-dml_0" in named.stdout, named.stderr


def test_all_coordinators_are_given_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection("a:1,b:2").server == "a:1,b:2"
    for wrong in ("a:1,", "a:1,b", "a:1,a:1"):
        with pytest.raises(BadConfig, match="HOST:PORT,HOST:PORT for coordinators that stand by"):
            connection(wrong)
    monkeypatch.setenv("TIDEMARK_SERVER", "c:3,d:4")
    assert connection().server == "c:3,d:4"
