"""How the clients of librdkafka are set up: what the log depends on, and deadlines.

A file of properties may add to it (TLS, SASL, names), but never change what the log depends on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.wal.kafka.kafka_url import KafkaPlace

ANSWER_S: Final = 30.0
"""The longest that an append waits for its answer; then its outcome is unknown."""
READ_S: Final = 15.0
"""The longest that a read, or a question about a topic, waits."""
VALUE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A group is cut into values of about this size; only a single larger record is not."""
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the topics take."""
KEY_AND_FRAME_BYTES: Final = 1024

OURS: Final[Mapping[str, str | int | bool]] = {
    # What matters of a lost connection is told with the operation that it failed.
    "log_level": 2,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "reconnect.backoff.max.ms": 1000,
    "metadata.recovery.strategy": "rebootstrap",
}
PRODUCER: Final[Mapping[str, str | int | bool]] = {
    # A group is acknowledged when all in-sync copies have it; a retry stores no second one.
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "none",
    "max.in.flight.requests.per.connection": 1,
    "linger.ms": 0,
    "message.max.bytes": MESSAGE_BYTES_MAX + KEY_AND_FRAME_BYTES,
    "message.timeout.ms": int(ANSWER_S * 1000),
    "request.timeout.ms": 10_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
}
CONSUMER: Final[Mapping[str, str | int | bool]] = {
    # Never joins a group, never commits: places are ours.
    "group.id": "tidemark",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is gone is told, not replaced by another one.
    "auto.offset.reset": "error",
    # What others have written is seen, whatever transaction it belongs to.
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    # Short: what a consumer asked for at the end of a topic delays its next place.
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 1024 * 1024,
    "queued.max.messages.kbytes": 8192,
    "receive.message.max.bytes": MESSAGE_BYTES_MAX + 64 * 1024 * 1024,
}
_FIXED: Final = {*PRODUCER, *CONSUMER} - {
    "retry.backoff.ms", "retry.backoff.max.ms", "fetch.wait.max.ms", "request.timeout.ms",
    "queued.max.messages.kbytes", "fetch.message.max.bytes", "group.id",
}  # fmt: skip


class BadClientFile(ValueError):
    """The file with properties of the client cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The properties of each kind of client for one place."""

    common: Mapping[str, str | int | bool]

    @classmethod
    def of(cls, place: KafkaPlace) -> "ClientSettings":
        """For a place; reads the file that it names. Raises BadClientFile."""
        given = _properties(Path(place.client)) if place.client else {}
        servers = {"bootstrap.servers": ",".join(place.servers)}
        return cls({"client.id": f"tidemark-{place.prefix}", **OURS, **given, **servers})

    @property
    def producer(self) -> dict[str, str | int | bool]:
        return {**PRODUCER, **self._without(CONSUMER, PRODUCER)}

    @property
    def consumer(self) -> dict[str, str | int | bool]:
        return {**CONSUMER, **self._without(PRODUCER, CONSUMER)}

    @property
    def admin(self) -> dict[str, str | int | bool]:
        return self._without({**PRODUCER, **CONSUMER}, {})

    def _without(
        self, other: Mapping[str, object], own: Mapping[str, object]
    ) -> dict[str, str | int | bool]:
        return {it: value for it, value in self.common.items() if it in own or it not in other}


def _properties(file: Path) -> dict[str, str]:
    """`NAME=VALUE` lines, and comments."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadClientFile(f"cannot read {file}: {error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in stripped.partition("="))
        if not equals or not name:
            raise BadClientFile(f"{file}, line {number}: {stripped!r} is not NAME=VALUE")
        if name in _FIXED or name == "bootstrap.servers":
            raise BadClientFile(
                f"{file}, line {number}: {name} is not yours to set: the log depends on it"
            )
        found[name] = value
    return found
