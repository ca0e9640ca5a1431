"""How long a client waits for what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. Nothing a client waits for is without one."""

    connect_s: float = 5.0
    """For the first answer of the server."""
    open_s: float = 5.0
    """For opening any stream; it is tried again as long as somebody waits."""
    append_s: float = 10.0
    """For an append, with all that is tried again in between."""
    call_s: float = 10.0
    """For a question with one answer."""
    give_up_s: float = 60.0
    """For a server that went away during a bounded read; other reads wait for it for ever."""
    close_s: float = 2.0
    """For answers that are still on their way when the client is closed."""
