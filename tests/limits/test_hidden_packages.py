"""A program whose module has the name of one of our packages gets a sentence that names it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker import own_packages

OURS = Path(own_packages.__file__).resolve().parents[1]
"""Where the tested packages are: the checkout, or the site-packages of an installed wheel."""

GUARD_S = 120.0
COMMAND = ("-c", "from tidemark_command import run; run()", "--version")
"""What the script `tidemark` of an installed wheel does."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder laid out as a wheel lays out site-packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("actors", "broker", "schemas"):
        (folder / name).symlink_to(OURS / name)
    (folder / "pyspark_tidemark").symlink_to(shipped("pyspark_tidemark", "broker/spark"))
    # A copy: the command looks for `broker` beside its own file.
    shutil.copy(shipped("tidemark_command.py", "broker/cli/entry"), folder)
    return folder


def shipped(name: str, folder: str) -> Path:
    """A module that a wheel has at its top, and a checkout in this folder."""
    place = OURS / name
    return place if place.exists() else OURS / folder / name


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def hiding(project: Path, name: str) -> Path:
    """The program's own module of this name: a file, or a package."""
    place = project / name
    if name.endswith(".py"):
        place.write_text("MINE = 1\n")
    else:
        place.mkdir()
        (place / "__init__.py").write_text("MINE = 1\n")
    return place


def python(
    site: Path, project: Path, *arguments: str, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, with the installed packages behind what `path` names."""
    variables = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{site}" if path else str(site)}
    # The gate sets it, and with it Python does not look into the folder of the program.
    variables.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=variables,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )


@pytest.mark.parametrize("name", ["schemas.py", "schemas", "actors.py", "actors"])
def test_an_import_of_the_client_names_the_file(site: Path, project: Path, name: str) -> None:
    place = hiding(project, name)
    (project / "program.py").write_text("from broker.client import connect\n")
    ended = python(site, project, "program.py")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"broker.own_packages.HiddenPackage: {place} hides Tidemark's package")
    assert f"rename that {'file' if name.endswith('.py') else 'folder'}" in last


@pytest.mark.parametrize("name", ["schemas.py", "broker.py", "broker", "actors"])
def test_the_command_says_it_in_one_line(site: Path, project: Path, name: str) -> None:
    place = hiding(project, name)
    ended = python(site, project, *COMMAND, path=str(project))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"tidemark: {place} hides Tidemark's package")


def test_a_module_of_another_name_hides_nothing(site: Path, project: Path) -> None:
    hiding(project, "brokers.py")
    (project / "schemas").mkdir()  # no package: Python prefers one that comes later
    (project / "program.py").write_text("from broker.client import connect\nprint('fine')\n")
    assert python(site, project, "program.py").stdout == "fine\n"
    assert python(site, project, *COMMAND).stdout.startswith("tidemark ")


@pytest.mark.parametrize("name", ["schemas.py", "broker"])
def test_the_format_of_spark_names_the_file(site: Path, project: Path, name: str) -> None:
    place = hiding(project, name)
    (project / "program.py").write_text(
        "from pyspark_tidemark import DefaultSource\nDefaultSource({}).schema()\n"
    )
    ended = python(site, project, "program.py")
    assert ended.returncode == 1
    assert f"{place} hides Tidemark's package" in ended.stderr.splitlines()[-1]
