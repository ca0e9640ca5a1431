"""How an installation learns of pins and of this machine's index, without being told a host."""

import os
import re
import sys
from pathlib import Path

import environment
import pytest


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the machine's nor the gate's own settings reach these tests."""
    for name in [*os.environ]:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))


def test_what_pip_is_told_is_handed_on_to_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.invalid/simple\n")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://more.invalid/simple")
    variables = environment.installer_variables(Path(sys.executable))
    assert variables["UV_DEFAULT_INDEX"] == "https://mirror.invalid/simple"
    assert variables["UV_INDEX"] == "https://more.invalid/simple"


def test_a_person_who_sets_uv_up_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.invalid/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "https://theirs.invalid/simple")
    variables = environment.installer_variables(Path(sys.executable))
    assert variables["UV_DEFAULT_INDEX"] == "https://mine.invalid/simple"


def test_our_wheels_come_before_folders_that_exist_and_others_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path / 'gone'}")
    wheels = tmp_path / "wheels"
    variables = environment.installer_variables(Path(sys.executable), wheels)
    assert variables["UV_FIND_LINKS"] == f"{wheels},{tmp_path}"


def test_installers_are_held_by_the_pins() -> None:
    variables = environment.installer_variables(Path(sys.executable))
    assert variables["UV_CONSTRAINT"] == str(environment.CONSTRAINTS)
    assert variables["UV_BUILD_CONSTRAINT"] == str(environment.CONSTRAINTS)


def test_each_pin_is_one_version_and_names_no_host() -> None:
    lines = environment.CONSTRAINTS.read_text().splitlines()[1:]
    odd = [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .*)?", line)]
    assert lines
    assert not odd


def test_what_is_published_as_source_only_is_pinned() -> None:
    names = {line.partition("==")[0] for line in environment.CONSTRAINTS.read_text().splitlines()}
    assert names >= set(environment.SOURCE_ONLY.values())
