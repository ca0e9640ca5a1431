"""A log driver that remembers the first log that cannot be opened however often it is tried."""

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, Log, UnknownFormat, Wal

Unreadable = Corrupt | UnknownFormat


class WatchedWal:
    """Wraps a `ports.wal.Wal`. `unreadable`: the error of the first damaged log, or None."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self.unreadable: Unreadable | None = None

    @property
    def name(self) -> str:
        return self._wal.name

    async def open(self, channel: PChannelName, term: Term) -> Log:
        try:
            return await self._wal.open(channel, term)
        except (Corrupt, UnknownFormat) as error:
            self.unreadable = self.unreadable or error
            raise

    async def writable(self) -> bool:
        return await self._wal.writable()
