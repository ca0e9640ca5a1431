"""Writes to stdout without blocking the event loop, whatever reads it, and however slowly.

A blocking write to a full pipe would stop the client: it could neither answer its broker nor notice
Ctrl-C. The descriptor is shared with other programs, so it must not be made non-blocking.
"""

import os
import select
import stat

import anyio

PIPE_PIECE_BYTES = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512
"""What a pipe that polls as writable takes without blocking."""


class StdoutWriter:
    """Writes whole buffers in order. A cancelled write ends with a whole line where it can."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self._blocks = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Return when all is written. Raises BrokenPipeError when nobody reads it any more."""
        view, at = memoryview(data), 0
        if not self._blocks:
            while at < len(view):
                at += os.write(self._descriptor, view[at:])
            return
        while at < len(view):
            if not self._poll.poll(0):
                try:
                    await anyio.wait_writable(self._descriptor)
                except anyio.get_cancelled_exc_class():
                    self._finish_line(data, at)
                    raise
            at += os.write(self._descriptor, view[at : at + PIPE_PIECE_BYTES])

    def _finish_line(self, data: bytes, at: int) -> None:
        """Write the rest of a line that was begun, if that fits."""
        end = data.find(b"\n", at) + 1
        begun = at and data[at - 1 : at] != b"\n"
        if begun and end - at <= PIPE_PIECE_BYTES and self._poll.poll(0):
            os.write(self._descriptor, data[at:end])
