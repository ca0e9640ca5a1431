"""Reports to the service manager that started this process when it can serve, and when it stops.

The protocol of systemd's sd_notify(3): a datagram to a socket that the environment names. Whoever
starts a broker otherwise has no such socket, and nothing is sent.
"""

import os
import socket
from contextlib import suppress
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


class SystemdReports:
    """Takes the address out of the environment, so that nodes that this process starts do not
    report in its name. Systemd that does not answer holds nobody up."""

    def __init__(self) -> None:
        self._address = os.environ.pop(VARIABLE, "")

    def report(self, state: str) -> None:
        """Send one state. Never fails: the service is more important than its manager."""
        if not self._address:
            return
        # An address that begins with "@" is in the abstract namespace, written with a zero byte.
        address = self._address.replace("@", "\0", 1) if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(state.encode(), address)
