"""A log driver with an eye on its openings: is there a log that no further try would open?

It changes nothing of what the driver does. Next: broker/wal/segmented/segmented_wal.py
"""

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, Log, UnknownFormat, Wal

Unreadable = Corrupt | UnknownFormat


class WatchedWal:
    """Implements `ports.wal.Wal` by another one. `unreadable`: what the first such log said."""

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
