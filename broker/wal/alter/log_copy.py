"""Copies a log record by record into another one, reads it back, and compares."""

from collections.abc import Sequence
from typing import Final

from broker.model.ids import MessageId
from broker.model.record import Record
from broker.ports.switching.log_copies import CopyTarget
from broker.ports.wal import Corrupt, Log, OutOfRange, WalError

PORTION_BYTES: Final = 1 << 20
CLOSE_BYTES: Final = 1 << 20
"""With less left, the rest is copied while appends wait: some ten milliseconds."""
REST_STEPS_MAX: Final = 16


class CopyDiffers(WalError):
    """The copy does not hold what the source holds, or cannot be read back."""

    def __init__(self, at: int, found: str) -> None:
        super().__init__(
            f"the copy differs from the log at message {at}: {found}; the log itself is as it was,"
            " and the copy is begun anew by itself"
        )
        self.at = at


class LogCopy:
    """The copy of `source` in `target`. Nothing may be removed from the source meanwhile.

    `checked_id`: below it both are known to be equal. One call at a time. Raises what the logs
    raise, and CopyDiffers.
    """

    def __init__(self, source: Log, target: CopyTarget, checked_id: MessageId) -> None:
        self.source, self.target = source, target
        self.checked_id = checked_id

    @property
    def fits(self) -> bool:
        """Whether the target holds a part of the source from its begin on, checked or not."""
        source, target = self.source.bounds(), self.target.bounds()
        begins = target.first_id <= source.first_id <= target.next_id <= source.next_id
        # Retention may have removed what was not compared, before the source was held again.
        return begins and source.first_id <= self.checked_id <= target.next_id

    @property
    def copied_id(self) -> MessageId:
        """What lies below it is in the target."""
        return self.target.bounds().next_id

    @property
    def is_whole(self) -> bool:
        """Whether both end at the same message, and all was compared."""
        return self.checked_id == self.copied_id == self.source.bounds().next_id

    @property
    def left_bytes(self) -> int:
        """About how much is left to compare, if all messages are of one size."""
        bounds = self.source.bounds()
        ids = bounds.next_id - bounds.first_id
        left = bounds.next_id - max(self.checked_id, bounds.first_id)
        return bounds.size_bytes * left // ids if ids else 0

    async def begin(self) -> None:
        """Empty the target, to begin where the source does."""
        bounds = self.source.bounds()
        await self.target.begin_anew(bounds.first_id, bounds.removed_tick)
        self.checked_id = bounds.first_id

    async def step(self) -> None:
        """Compare a portion if something was not yet, else copy one."""
        if self.checked_id < self.copied_id:
            await self._compare()
        else:
            await self._copy()

    async def rest(self) -> bool:
        """Copy and compare what is left; nobody may append to the source meanwhile.

        False if it is more than it seemed: appends must not wait so long.
        """
        steps = 0
        while not self.is_whole:
            if steps == REST_STEPS_MAX:
                return False
            await self.step()
            steps += 1
        source, target = self.source.bounds(), self.target.bounds()
        if source.last_tick != target.last_tick:
            found = f"tick {target.last_tick} is the last one, and not {source.last_tick}"
            raise CopyDiffers(source.next_id, found)
        return True

    async def _copy(self) -> None:
        end, at = self.source.bounds(), self.copied_id
        records = await self.source.read(at, PORTION_BYTES)
        until_id, until_tick = end.next_id, end.last_tick
        if records:
            until_id, until_tick = records[-1].next_id, records[-1].last_tick
        await self.target.append_copies(records, until_id, until_tick)

    async def _compare(self) -> None:
        end = self.copied_id
        wanted = _below(await self.source.read(self.checked_id, PORTION_BYTES), end)
        until = wanted[-1].next_id if wanted else end
        at, found = self.checked_id, list[Record]()
        while at < until:
            try:
                portion = _below(await self.target.read(at, PORTION_BYTES), until)
            except (Corrupt, OutOfRange) as damage:
                raise CopyDiffers(at, f"it cannot be read back: {damage}") from damage
            found += portion
            at = portion[-1].next_id if portion else until
        if found != wanted:
            raise _difference(wanted, found, self.checked_id)
        self.checked_id = until


def _below(records: Sequence[Record], end: MessageId) -> list[Record]:
    return [it for it in records if it.base_id < end]


def _difference(wanted: Sequence[Record], found: Sequence[Record], at: MessageId) -> CopyDiffers:
    for one, other in zip(wanted, found, strict=False):
        if one != other:
            return CopyDiffers(one.base_id, f"message {other.base_id} is another one")
    common = min(len(wanted), len(found))
    if common:
        at = wanted[common - 1].next_id
    return CopyDiffers(at, f"it has {len(found)} records where the log has {len(wanted)}")
