"""The keepalive of a transaction, as its begin asks for it."""

from broker.client.errors import InvalidArgument


def checked_keepalive_ms(keepalive_s: float | None) -> int:
    """In milliseconds, 0 for the server's default; InvalidArgument below 1 ms."""
    if keepalive_s is None:
        return 0
    keepalive_ms = int(keepalive_s * 1000)
    if keepalive_ms <= 0:
        raise InvalidArgument(f"a keepalive of {keepalive_s} s is too short; use at least 0.001")
    return keepalive_ms
