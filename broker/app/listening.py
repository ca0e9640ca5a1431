"""Binds the socket that a process listens on, before anything else is opened."""

import errno
import socket

from broker.addresses import joined_address, split_address
from broker.app.process_errors import CannotStart

LISTEN_BACKLOG = 1024


def bind(listen: str) -> socket.socket:
    """A listening socket on HOST:PORT. Raises CannotStart, so that a taken port is found first."""
    host, port = split_address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Otherwise a restart would have to wait for old connections in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(LISTEN_BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"{listen} is in use by another program; stop it, or pass another --listen"
            ) from error
        raise CannotStart(f"cannot listen on {listen}: {error.strerror or error}") from error
    return bound


def address_of(bound: socket.socket) -> str:
    """HOST:PORT of a bound socket."""
    host, port = bound.getsockname()[:2]
    return joined_address(host, port)
