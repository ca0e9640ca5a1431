"""Finds Java 17 or newer, installs it, or names the command that does.

Installs only as root on a system with apt-get. As a program it prints the JAVA_HOME it found.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSION_MIN = 17
_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")  # newer Debians carry no 17
_PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_COMMANDS = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-latest-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre17-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk@17",
    "winget": "winget install EclipseAdoptium.Temurin.17.JRE",
}


class JavaMissing(Exception):
    """There is no Java 17 or newer, and we may not install it; the message names the command."""


def ensure_java() -> Path:
    """The JAVA_HOME of Java 17 or newer; installs it where we may. Raises JavaMissing."""
    home = find_java() or _install()
    if home is None:
        raise JavaMissing(f"there is no Java >= {VERSION_MIN}; install it with: {command()}")
    return home


def find_java() -> Path | None:
    """The first JAVA_HOME of a working Java 17 or newer: from JAVA_HOME, PATH, usual places."""
    for home in _homes():
        program = home / "bin" / ("java.exe" if os.name == "nt" else "java")
        if program.exists() and version_of(_banner(program)) >= VERSION_MIN:
            return home
    return None


def version_of(banner: str) -> int:
    """The major version in the output of `java -version`; 0 without one. 1.8 counts as 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if match is None:
        return 0
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


def command() -> str:
    """The one command that installs Java on this platform."""
    for program, line in _COMMANDS.items():
        if shutil.which(program):
            return line
    return "see https://adoptium.net"


def _homes() -> Iterator[Path]:
    if "JAVA_HOME" in os.environ:
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]
    for place in _PLACES:
        yield from sorted(Path("/").glob(place.removeprefix("/")), reverse=True)


def _banner(program: Path) -> str:
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stderr + told.stdout


def _install() -> Path | None:
    if not (sys.platform == "linux" and shutil.which("apt-get") and os.geteuid() == 0):
        return None
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print("no Java 17 or newer found; installing it with apt-get", file=sys.stderr)
    subprocess.run(["apt-get", "update", "-qq"], env=variables, check=False)
    for package in _PACKAGES:
        line = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        subprocess.run(line, env=variables, stdout=subprocess.DEVNULL, check=False)
        home = find_java()
        if home is not None:
            return home
    return None


if __name__ == "__main__":
    try:
        print(ensure_java())
    except JavaMissing as missing:
        sys.exit(str(missing))
