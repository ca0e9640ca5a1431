"""The freshness check of the generated code."""

from pathlib import Path

import gen_protos
import pytest


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_changed_missing_and_left_over_files_are_named(tmp_path: Path) -> None:
    fresh = write(tmp_path / "fresh", {"same.py": "1", "a/changed.py": "1", "missing.py": "1"})
    committed = write(
        tmp_path / "committed",
        {"same.py": "1", "a/changed.py": "2", "left.py": "1", "__pycache__/same.pyc": "x"},
    )
    assert gen_protos.differences(fresh, committed) == ["a/changed.py", "left.py", "missing.py"]


def test_stale_code_is_reported_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert gen_protos.report(["a.py"]) == 1
    assert "run `python scripts/gen_protos.py`" in capsys.readouterr().err
    assert gen_protos.report([]) == 0
