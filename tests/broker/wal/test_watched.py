"""The watching driver remembers logs that cannot be opened, and changes nothing."""

import pytest

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, Fenced, UnknownFormat, WalError
from broker.wal.memory_wal import MemoryLog, MemoryWal
from broker.wal.watched import WatchedWal

NAME = PChannelName("by-dev-rootcoord-dml_0")


class Unopenable(MemoryWal):
    """Fails with the given error."""

    def __init__(self, *errors: WalError) -> None:
        super().__init__()
        self.errors = list(errors)

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        if self.errors:
            raise self.errors.pop(0)
        return await super().open(channel, term)


async def test_the_first_unreadable_log_is_remembered_and_every_error_passes() -> None:
    damage, version = Corrupt("a.log", 7, "torn"), UnknownFormat("b.log", 2, 1)
    watched = WatchedWal(Unopenable(Fenced(NAME, 1, 2), damage, version))
    for error in (Fenced, Corrupt, UnknownFormat):
        with pytest.raises(error):
            await watched.open(NAME, Term(1))
    assert watched.unreadable is damage
    assert (await watched.open(NAME, Term(3))).term == 3


async def test_a_readable_log_is_not_remembered() -> None:
    watched = WatchedWal(MemoryWal())
    await (await watched.open(NAME, Term(1))).close()
    assert watched.unreadable is None
    assert not await watched.why_unwritable(NAME)
    assert watched.name == MemoryWal().name
