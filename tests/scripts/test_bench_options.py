"""The command line of the benchmark: what is wrong is refused before minutes pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark.options import WORK, parsed, size_of
from benchmark.results.figures import RATE, BadResults, Round, Series, as_json
from benchmark.results.saved import loaded

SCRIPT = WORK.parent / "scripts" / "bench.py"
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--messages", "10"], "--messages must be at least 8,000, not 10"),
        (["--seconds", "0"], "--seconds must be above 0 and at most 60, not 0"),
        (["--seconds", "nan"], "--seconds must be above 0 and at most 60, not nan"),
        (["--with", "pulsar"], "invalid choice: 'pulsar'"),
        (["--compare", "a", "b", "c"], "--compare takes one or two files, not 3"),
        (["--compare", "a", "b", "--compiled"], "--compare OLD.json NEW.json measures nothing"),
        (["--compare", "a", "b", "--quick"], "--compare OLD.json NEW.json measures nothing"),
        (["--reopen", "1Gb"], "'1Gb' is not a size such as 64MiB or 1GiB"),
        (["--reopen", "0"], "'0' is not a size such as 64MiB or 1GiB"),
        (["--wal", "kafka", "--only", "append"], "--wal is a measurement of its own"),
        (["--wal", "pulsar"], "invalid choice: 'pulsar'"),
        (["--reopen", "1GiB", "--only", "append"], "--reopen is a measurement of its own"),
        (["--out", __file__], f"--out must name a folder; {__file__} is a file"),
        (["--only", "|"], "--only needs at least one word, not '|'"),
        (["--round", "5"], "unrecognized arguments: --round"),
    ],
)
def test_a_wrong_option_is_refused_with_its_value(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(arguments, "about")
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_paths_are_seen_from_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = parsed(["--out", "o", "--compare", "old.json", "--downloads", "d"], "about")
    assert (options.out, options.downloads) == (tmp_path / "o", tmp_path / "d")
    assert options.compare == [tmp_path / "old.json"]
    assert parsed([], "about").out == WORK
    assert parsed(["--with", "kafka", "--with", "rabbitmq"], "").more == ["kafka", "rabbitmq"]
    assert parsed(["--only", "Latency|idle"], "").only == ["latency", "idle"]


def test_sizes_have_units() -> None:
    assert (size_of("64MiB"), size_of("1 GiB"), size_of("5")) == (64 << 20, 1 << 30, 5)
    assert parsed(["--reopen"], "").reopen == 1 << 30
    assert parsed([], "").reopen is None


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-S", str(SCRIPT), *arguments]
    return subprocess.run(
        command, env=BARE, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command_needs_nothing_installed_to_refuse_an_option_or_a_file(tmp_path: Path) -> None:
    wrong = run("--wrong")
    assert wrong.returncode == 2
    assert "unrecognized arguments: --wrong" in wrong.stderr
    help_text = run("--help")
    assert help_text.returncode == 0
    assert "--with {kafka,rabbitmq}" in help_text.stdout
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "half.json").write_text('{"subjects": [')
    for name, told in (
        ("missing.json", "No such file or directory"),
        ("other.json", "no results of a benchmark in it"),
        ("half.json", "is not JSON"),
    ):
        refused = run("--compare", str(tmp_path / name))
        assert refused.returncode == 1
        assert told in refused.stderr
        assert name in refused.stderr
        assert "Traceback" not in refused.stderr


def test_what_a_run_wrote_is_loaded_and_anything_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    measured = [Series("a", "append", rounds=[Round({RATE: 1.0})])]
    path.write_text(json.dumps(as_json(measured, {})))
    assert loaded(path) == measured
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadResults, match="is not JSON"):
        loaded(path)
    with pytest.raises(BadResults, match="cannot read"):
        loaded(tmp_path)
