"""Settings that cannot be used are told in one sentence, before anything is served."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.cli.main import app
from broker.cli.serving import run_node, run_server

FILE = "tidemark.toml"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"pchannels = = 1", "tidemark.toml is not valid TOML: Invalid value"),
        (b"cluster = '\xff'", "tidemark.toml is not valid TOML: "),
        (b"colour = 1", "'colour' in tidemark.toml is not a setting"),
        (b"pchannels = 'a'", "setting pchannels: "),
        (b"pchannels = 0", f"setting pchannels: must be greater than 0, not 0 ({FILE})\n"),
        (
            b"log_format = 'xml'",
            f"setting log_format: must be console or json, not 'xml' ({FILE})\n",
        ),
        (b"cluster = 'a b'", "setting cluster: "),
        (
            b"listen = 'here'",
            "setting listen: 'here' is not HOST:PORT, such as 127.0.0.1:19531 (tidemark.toml)\n",
        ),
    ],
)
def test_a_wrong_file_is_one_sentence(
    content: bytes,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tidemark.toml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_server({})
    complaint = capsys.readouterr().err
    assert ended.value.code == 2
    assert complaint.startswith(f"tidemark: {sentence}")
    assert complaint.count("\n") == 1


def test_a_node_without_a_coordinator_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_node({}, leashed=False)
    assert ended.value.code == 2
    assert "pass --coordinator HOST:PORT" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_roles_started_by_hand_have_the_options_of_serve() -> None:
    help_of = {
        role: CliRunner().invoke(app, [role, "--help"], env={"COLUMNS": "120"}).output
        for role in ("serve", "coordinator", "node")
    }
    for option in ("--listen", "--cluster", "--log-format", "--allow-chaos", "--http-port"):
        assert [role for role, text in help_of.items() if option not in text] == []
