"""Opens each log where the metadata says that it lies."""

from collections.abc import Sequence
from contextlib import suppress

from anyio import to_thread

from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching.log_drivers import LogDrivers
from broker.model.ids import PChannelName, Term
from broker.ports.meta import MetaError
from broker.ports.wal import WriterFailed
from broker.wal.alter.placed_log import PlacedLog


class PlacedWal:
    """Implements `ports.wal.Wal` for all pchannels of a process."""

    def __init__(self, places: StoredPlaces, drivers: LogDrivers) -> None:
        self._places, self._drivers = places, drivers
        self._logs: dict[PChannelName, PlacedLog] = {}
        self._wanted: dict[PChannelName, str] = {}
        """Where each pchannel had its log when it was last looked for here."""

    @property
    def name(self) -> str:
        # Of all drivers: the ids are ours wherever the log is.
        return "rocksmq"

    async def open(self, channel: PChannelName, term: Term) -> PlacedLog:
        try:
            place, moves = await self._places.opening(channel)
        except MetaError as error:
            raise WriterFailed(f"{channel}: cannot read where its log is: {error}") from error
        self._wanted[channel] = place
        # On a thread: a client library may have to be loaded.
        driver = await to_thread.run_sync(self._drivers.at, place)
        # Before anybody sees it: nothing may be removed of what the last owner has copied.
        opened = PlacedLog(await driver.open(channel, term), place, held=moves)
        self._logs[channel] = opened
        return opened

    def warnings(self) -> Sequence[str]:
        # Of a target the switch tells, for as long as there is one.
        return [text for it in self._places_in_use() for text in self._drivers.at(it).warnings()]

    async def why_unwritable(self, channel: PChannelName) -> str:
        # Of this log alone: others may lie in a place that is away, and so may the target.
        with suppress(MetaError):
            self._wanted[channel] = await self._places.place(channel)
        place = self._wanted.get(channel)
        return "" if place is None else await self._drivers.at(place).why_unwritable(channel)

    def _places_in_use(self) -> Sequence[str]:
        return sorted({it.place for it in self._open()} or {*self._wanted.values()})

    def _open(self) -> Sequence[PlacedLog]:
        return [it for it in self._logs.values() if not it.closed]
