"""The drivers of the places where a process has logs, each made when it is needed first."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, Self

from anyio import to_thread

from broker.app.process_errors import CannotStart
from broker.model.ids import PChannelName, Term
from broker.ports.switching.log_copies import CopyingWal
from broker.ports.wal import WalError, WriterFailed

MakeDriver = Callable[[str, ExitStack], CopyingWal]
"""Makes the driver of a place; what is to be closed at the end goes to the stack. CannotStart."""


class NoRoom(WalError):
    """A place has too little room for a copy. Nothing was written."""


class Markers(Protocol):
    """Tells programs that do not know of switches where the log of a data folder is."""

    def mark(self, place: str) -> None:
        """From here on such a program must not open segment files as the log. WriterFailed."""
        ...

    def settle(self, place: str) -> None:
        """Nothing of the log is anywhere else. Raises WriterFailed."""
        ...


class LogDrivers:
    """A context manager; drivers are closed when the block ends.

    `url_of`: how to reach a place now; `make` is given that. `no_room`: see `check_room`.
    """

    def __init__(
        self,
        make: MakeDriver,
        url_of: Callable[[str], str] = str,
        no_room: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._make, self._url_of, self._no_room = make, url_of, no_room
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._made: dict[str, CopyingWal] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check_room(self, place: str) -> None:
        """Raise NoRoom where nothing may be copied to a place now. Blocks its thread."""
        why = self._no_room(place)
        if why:
            raise NoRoom(why)

    async def remove(self, place: str, channel: PChannelName, term: Term) -> bool:
        """See `CopyingWal.remove`."""
        driver = await to_thread.run_sync(self.at, place)
        return await driver.remove(channel, term)

    def at(self, place: str) -> CopyingWal:
        """The driver of a place; for any thread. WriterFailed where there can be none here."""
        with self._lock:
            url = self._url_of(place)
            made = self._made.get(url)
            if made is None:
                try:
                    made = self._made[url] = self._make(url, self._stack)
                except CannotStart as error:
                    raise WriterFailed(str(error)) from error
            return made
