"""The jars of Apache Kafka: fetched from Maven Central once, checked by SHA-512 each time.

`kafka_jars.txt` names each jar by its path on Maven Central, with the checksum it must have.
"""

import hashlib
import urllib.request
from collections.abc import Callable, Iterator
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
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for path, checksum in listed(wanted):
        jar = folder / Path(path).name
        if not jar.exists() or _checksum(jar.read_bytes()) != checksum:
            content = fetch(CENTRAL + path)
            if _checksum(content) != checksum:
                raise BadJar(f"{CENTRAL}{path} has another SHA-512 than {LIST.name} says")
            # Renamed when whole, so that an interrupted run leaves no half of a jar.
            partial = jar.with_suffix(".part")
            partial.write_bytes(content)
            partial.rename(jar)
        found.append(jar)
    return found


def _checksum(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()
