"""gRPC metadata: the create headers of streams, and the server that a call is meant for.

Also the first answer of an Append stream, which says what the server knows.
"""

from dataclasses import dataclass
from typing import Final

from schemas.encoding.base64_text import read_base64
from schemas.encoding.fields import fields
from schemas.encoding.varint import Malformed, signed, varint

CREATE_PRODUCER: Final = "create-producer"
CREATE_CONSUMER: Final = "create-consumer"
CLUSTER: Final = "cluster"
"""Prefix of the cluster the call is meant for; absent or empty fits all."""
SERVER_ID: Final = "serverid"
"""Decimal id of the server the call is meant for; absent or unparsable fits all."""
OWN_PROPERTIES: Final = 1
"""`AppendRevision.OWN_PROPERTIES`; 0 is `AppendRevision.FIRST`."""
WHOLE_TXNS: Final = 2
"""`AppendRevision.WHOLE_TXNS`."""
APPEND_REVISION: Final = "append-revision"
"""The header with which a producer asks for the revision of `Append` in the first answer."""


@dataclass(frozen=True, slots=True)
class CreateHeader:
    """The pchannel a stream is opened on; numbers are as sent, also when no server would serve it.

    `access_mode` is a number of `streaming.PChannelAccessMode`.
    """

    pchannel: str
    term: int
    access_mode: int = 0


def read_create_header(text: str) -> CreateHeader:
    """Raises Malformed when the value is not base64 of a create request, or names no pchannel."""
    data = read_base64(text)
    info = [data[first:stop] for tag, first, stop in fields(data, 0, len(data)) if tag == 0x0A]
    if not info:
        raise Malformed("a create request without pchannel", 0)
    return _read_info(b"".join(info))


def _read_info(data: bytes) -> CreateHeader:
    name, term, access_mode = b"", 0, 0
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            name = data[first:stop]
        elif tag == 0x10:
            term = signed(first)
        elif tag == 0x18:
            access_mode = signed(first)
    try:
        return CreateHeader(name.decode(), term, access_mode)
    except UnicodeDecodeError:
        raise Malformed("a pchannel name that is not UTF-8", 0) from None


def append_greeting(revision: int) -> bytes:
    """The first answer of a server, for a producer that asked for its revision of `Append`."""
    return b"\x40" + varint(revision)


def scan_append_greeting(frame: bytes) -> int | None:
    """The revision in a first answer, 0 in an empty one; None when it is no greeting."""
    revision = 0
    for tag, first, _ in fields(frame, 0, len(frame)):
        if tag != 0x40:
            return None
        revision = first
    return revision
