"""The build hook of the compiled wheel: what it compiles, and when it refuses."""

import tomllib
from pathlib import Path

import pytest
from compile_schemas import CompiledSchemas
from environment import ROOT

from schemas.compiled import compiled

HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
    "build"
]["targets"]["wheel"]["hooks"]["custom"]


def hook(folder: Path) -> CompiledSchemas:
    return CompiledSchemas(str(folder), HOOK, None, None, str(folder), "wheel")  # type: ignore[arg-type]


def test_the_wheel_is_pure_python_unless_asked_otherwise() -> None:
    assert HOOK["enable-by-default"] is False


def test_every_module_to_compile_exists() -> None:
    assert [name for name in HOOK["modules"] if not (ROOT / name).is_file()] == []


def test_an_editable_installation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="edits would have no effect"):
        hook(tmp_path).initialize("editable", {"force_include": {}})


def test_no_binary_lies_beside_a_source_of_this_checkout() -> None:
    assert [*(ROOT / "schemas").rglob("*.so"), *ROOT.glob("*.so")] == []


def test_the_schemas_run_as_the_run_was_told(pytestconfig: pytest.Config) -> None:
    assert compiled() is (pytestconfig.getoption("--schemas") == "compiled")
