"""What a caller's deadline may be at the least, so that a late call ends as one that is late.

Owns one number. grpclib takes a call whose deadline has passed when it arrives for a failure of the
server: UNKNOWN, and a traceback. With a moment left it ends the call as DEADLINE_EXCEEDED.
"""

from collections.abc import Sequence

from grpclib.metadata import decode_timeout

TIMEOUT_HEADER = "grpc-timeout"
LEAST_S = 0.005
LEAST = "5m"
"""The same, as the header has it: milliseconds."""

Headers = Sequence[tuple[str, str]]


def with_a_moment(headers: Headers) -> Headers:
    """The headers of a call, with a deadline that has not passed yet."""
    if not any(name == TIMEOUT_HEADER and _is_over(value) for name, value in headers):
        return headers
    others = [(name, value) for name, value in headers if name != TIMEOUT_HEADER]
    return [*others, (TIMEOUT_HEADER, LEAST)]


def _is_over(value: str) -> bool:
    try:
        return decode_timeout(value) < LEAST_S
    except ValueError:
        return False  # grpclib refuses what is no timeout
