"""The form of every JSON record in the metadata store: a version, and errors that name the key."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from broker.ports.meta import LastingFailure
from broker.unreadable import UNREADABLE

VERSION = 1
T = TypeVar("T")


class UnreadableRecord(LastingFailure):
    """A stored record is damaged, or of a newer version; reading it again does not change that."""


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """One line of JSON, with the version first."""
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")).encode()


def decode_fields(key: str, value: bytes, parse: Callable[[dict[str, Any]], T]) -> T:
    """What `parse` makes of the fields; UnreadableRecord if damaged or of an unknown version."""
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version == VERSION:
            return parse(fields)
    except UNREADABLE as error:
        raise UnreadableRecord(f"{key}: stored record is unreadable: {error!r}") from error
    cause = f"{key}: record version {version}; this program knows version {VERSION}"
    raise UnreadableRecord(cause)
