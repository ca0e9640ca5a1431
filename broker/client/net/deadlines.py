"""The timeouts of a client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. Every wait of a client has one."""

    connect_s: float = 5.0
    """For the server's first answer."""
    open_s: float = 5.0
    """For opening a stream; it is retried while an append or a reader waits."""
    append_s: float = 10.0
    """For an append, all retries included."""
    call_s: float = 10.0
    """For a call with one answer."""
    silence_s: float = 60.0
    """For a server that is silent during a bounded read; other reads wait without limit."""
    close_s: float = 2.0
    """For answers in flight when the client is closed."""
