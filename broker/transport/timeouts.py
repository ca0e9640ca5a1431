"""Raise deadlines that have already passed to a few milliseconds, so that calls end as late ones.

grpclib treats a call whose deadline has passed on arrival as a failure of the server: UNKNOWN, with
a traceback. With a few milliseconds left it ends the call as DEADLINE_EXCEEDED.
"""

from collections.abc import Sequence

from grpclib.metadata import decode_timeout

TIMEOUT_HEADER = "grpc-timeout"
LEAST_S = 0.005
LEAST = "5m"
"""The same, as the header has it: milliseconds."""

Headers = Sequence[tuple[str, str]]


def with_least_timeout(headers: Headers) -> Headers:
    """The headers, with a deadline that has not passed yet."""
    if not any(name == TIMEOUT_HEADER and _is_over(value) for name, value in headers):
        return headers
    others = [(name, value) for name, value in headers if name != TIMEOUT_HEADER]
    return [*others, (TIMEOUT_HEADER, LEAST)]


def _is_over(value: str) -> bool:
    try:
        return decode_timeout(value) < LEAST_S
    except ValueError:
        return False  # grpclib refuses a malformed timeout
