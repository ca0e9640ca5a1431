"""How an installation learns of pins and of this machine's index, without being told a host."""

import os
import re
from pathlib import Path

import environment
import pytest

PIP_SAYS = """\
:env:.extra-index-url='https://more.invalid/simple'
global.index-url='https://mirror.invalid/simple'
global.timeout='60'
install.extra-index-url='https://less.invalid/simple'
"""


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the machine's nor the gate's own settings reach these tests."""
    for name in [*os.environ]:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)


def test_what_pip_is_told_is_handed_on_to_uv_and_a_variable_wins_over_a_file() -> None:
    variables = environment.installer_variables(PIP_SAYS)
    assert variables["UV_DEFAULT_INDEX"] == "https://mirror.invalid/simple"
    assert variables["UV_INDEX"] == "https://more.invalid/simple"


def test_a_person_who_sets_uv_up_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.invalid/simple")
    variables = environment.installer_variables(PIP_SAYS)
    assert variables["UV_DEFAULT_INDEX"] == "https://mine.invalid/simple"


def test_our_wheels_come_first_and_folders_that_are_gone_are_left_out(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    said = f"global.find-links='{tmp_path} {tmp_path / 'gone'}'"
    variables = environment.installer_variables(said, wheels)
    assert variables["UV_FIND_LINKS"] == f"{wheels},{tmp_path}"


def test_installers_are_held_by_the_pins() -> None:
    variables = environment.installer_variables("")
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


def test_a_pin_is_read_whatever_its_marker_compares() -> None:
    text = "# made\na==1.0\nb==2.0 ; c < '3' and d == 'e'\nf==1 ; g < 'h'\nf==2 ; g >= 'h'\n"
    assert environment.pinned_versions(text) == {"a": "1.0", "b": "2.0", "f": "2"}


def test_every_source_only_package_has_a_pin() -> None:
    pins = environment.pinned_versions(environment.CONSTRAINTS.read_text())
    assert set(environment.SOURCE_ONLY.values()) <= pins.keys()
