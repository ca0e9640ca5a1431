"""An address of this machine where connection attempts get no answer at all."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

WAITING_MAX = 16


@contextmanager
def hanging_address() -> Iterator[tuple[str, int]]:
    """A listener that accepts nothing and whose queue is full: the system drops what else comes."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(WAITING_MAX):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()
