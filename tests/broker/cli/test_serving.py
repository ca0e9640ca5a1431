"""Settings that cannot be used are told in one sentence, before anything is served."""

from pathlib import Path

import pytest

from broker.cli.serving import run_server


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"pchannels = = 1", "tidemark.toml is no TOML: Invalid value"),
        (b"cluster = '\xff'", "tidemark.toml is no TOML: "),
        (b"colour = 1", "'colour' in tidemark.toml is no setting"),
        (b"pchannels = 'a'", "setting pchannels: "),
        (b"listen = 'here'", "setting listen: 'here' is not HOST:PORT, such as 127.0.0.1:19531\n"),
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
