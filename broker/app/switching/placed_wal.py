"""Opens each log where the metadata says that it lies."""

from collections.abc import Sequence

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
        self._wanted: set[str] = set()

    @property
    def name(self) -> str:
        # Of all drivers: the ids are ours wherever the log is.
        return "rocksmq"

    async def open(self, channel: PChannelName, term: Term) -> PlacedLog:
        try:
            place = await self._places.place(channel)
        except MetaError as error:
            raise WriterFailed(f"{channel}: cannot read where its log is: {error}") from error
        self._wanted.add(place)
        # On a thread: a client library may have to be loaded.
        driver = await to_thread.run_sync(self._drivers.at, place)
        opened = PlacedLog(await driver.open(channel, term), place)
        self._logs[channel] = opened
        return opened

    def warnings(self) -> Sequence[str]:
        # Of a target the switch tells, for as long as there is one.
        return [text for it in self._places_in_use() for text in self._drivers.at(it).warnings()]

    async def why_unwritable(self) -> str:
        # A target that is away keeps no log from being written.
        drivers = [self._drivers.at(it) for it in self._places_in_use()]
        return "; ".join([why for it in drivers if (why := await it.why_unwritable())])

    def _places_in_use(self) -> Sequence[str]:
        return sorted({it.place for it in self._logs.values()} or self._wanted)
