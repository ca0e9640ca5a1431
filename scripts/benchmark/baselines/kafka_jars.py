"""The jars of Apache Kafka: fetched from Maven Central once, checked by SHA-512 each time.

`kafka_jars.txt` names each jar by its path on Maven Central, with the checksum it must have.
"""

import fcntl
import hashlib
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CENTRAL = "https://repo1.maven.org/maven2/"
LIST = Path(__file__).with_name("kafka_jars.txt")
FETCH_S_MAX = 120.0

Fetch = Callable[[str], bytes]


class BadJar(Exception):
    """A jar cannot be had, or is not the one that was meant; the message says which and why."""


def listed(text: str) -> Iterator[tuple[str, str]]:
    """Path and checksum of each jar."""
    for line in text.splitlines():
        path, checksum = line.split()
        yield path, checksum


def fetched(url: str) -> bytes:
    """The content of a URL. Raises BadJar when it cannot be read."""
    try:
        with urllib.request.urlopen(url, timeout=FETCH_S_MAX) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise BadJar(f"cannot fetch {url}: {error}") from error


def class_path(folder: Path, wanted: str, fetch: Fetch = fetched) -> list[Path]:
    """All jars in this folder, each with the right checksum; those that are not there are fetched.

    `wanted` is the content of a list. Raises BadJar; a jar that is not the right one is not kept.
    Of several processes one fetches, and the others wait for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        return [_jar(folder, path, checksum, fetch) for path, checksum in listed(wanted)]


def _jar(folder: Path, path: str, checksum: str, fetch: Fetch) -> Path:
    jar = folder / Path(path).name
    if jar.exists() and _checksum(jar.read_bytes()) == checksum:
        return jar
    content = fetch(CENTRAL + path)
    if _checksum(content) != checksum:
        raise BadJar(f"{CENTRAL}{path} has another SHA-512 than {LIST.name} says")
    # Renamed when whole, so that an interrupted run leaves no half of a jar.
    partial = jar.with_suffix(".part")
    partial.write_bytes(content)
    return partial.rename(jar)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _checksum(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()
