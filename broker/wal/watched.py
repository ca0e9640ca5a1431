"""A log driver that remembers the first log that cannot be opened however often it is tried."""

from collections.abc import Sequence

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, Log, UnknownFormat, Unsuitable, Wal

Unreadable = Corrupt | UnknownFormat | Unsuitable


class WatchedWal:
    """Wraps a `ports.wal.Wal`. `unreadable`: why no retry opens the first such log, or None."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self.unreadable: Unreadable | None = None

    @property
    def name(self) -> str:
        return self._wal.name

    async def open(self, channel: PChannelName, term: Term) -> Log:
        try:
            return await self._wal.open(channel, term)
        except (Corrupt, UnknownFormat, Unsuitable) as error:
            self.unreadable = self.unreadable or error
            raise

    def warnings(self) -> Sequence[str]:
        return self._wal.warnings()

    async def why_unwritable(self, channel: PChannelName) -> str:
        return await self._wal.why_unwritable(channel)
