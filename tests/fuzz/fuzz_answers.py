"""What a server answers: the scanners of the client, which may be connected to anything."""

from schemas.answers import scan_consume_response, scan_produce_response
from schemas.batches import (
    Position,
    ReadBatch,
    append_landed,
    append_refused,
    read_batch,
    read_response,
    scan_append_response,
    scan_read_response,
)
from schemas.encoding.varint import Malformed
from schemas.handshake import append_greeting, scan_append_greeting
from schemas.leased import leased_response, scan_join_response
from schemas.splice import consume_message, produce_error, produce_result
from schemas.status import StreamingError, read_status_details, status_details
from tests.fuzz.choice import numbered, read_by_first_byte


def check(data: bytes) -> None:
    """An answer, or Malformed."""
    read_by_first_byte(data, READERS, (Malformed,))


READERS = (
    scan_produce_response,
    scan_consume_response,
    scan_append_response,
    scan_read_response,
    scan_join_response,
    scan_append_greeting,
    read_status_details,
)

_BATCH = ReadBatch("v", (1, 2), b"", 7, 1 << 60, 5, 2, key_sizes=(2, 0), keys=b"k", body=b"abc")
_READ = read_response(read_batch(_BATCH), 1 << 60, Position(9, 1 << 60, 3, 1))
SEEDS = numbered(
    (
        produce_result(1, 12345, 1 << 60, 12344),
        produce_error(1, 11, "too large"),
        consume_message(7, 1 << 60, 6, 2, b"\x12\x01a\x1a\x06\x0a\x02_t\x12\x00"),
        append_landed(7, 1 << 60, 6, 1),
        append_refused(11, "no", 5, dropped=True, retry_ms=100),
        b"".join(_READ),
        leased_response(b"\x08\x01", [_READ])[5:],
        append_greeting(3),
        status_details(StreamingError(11, "cause")),
    ),
    len(READERS),
)
