"""What retention may remove of each pchannel, given the cursors, and what it has removed.

Used by one actor, one call at a time, so that no cursor is set behind a removal while that is
decided. A removal is recorded before it is allowed: whoever is passed is named first, also when
every process dies right after it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from broker.core.time.cursor_holds import hold_of, lost_on, without_those_that_moved
from broker.model.ids import PChannelName
from broker.model.named_cursor import NamedCursor
from broker.model.retention.holders import (
    HeldBack,
    Hold,
    HolderKind,
    Holding,
    PassCause,
    Passed,
    Removal,
)
from broker.model.retention.policy import (
    HoldLimits,
    LogStart,
)
from broker.ports.meta import MetaStore
from broker.timesync.holds.removed_records import RemovedRecord, RemovedRecords

PASSED_MAX: Final = 64
"""Named for each pchannel: those that were passed last."""
HOLDERS_MAX: Final = 64
"""Named for each pchannel: those that hold back most."""

Cursors = Sequence[NamedCursor]


class HoldRule:
    """`now`: the limits of cursors; an operator may change them while the process runs."""

    def __init__(self, limits: HoldLimits) -> None:
        self.now = limits


class HeldFigures:
    """What was seen last; shared by the actor that knows and the metrics that show."""

    def __init__(self) -> None:
        self.seen: Mapping[PChannelName, HeldBack] = {}

    def names(self, name: str) -> bool:
        """Whether anyone of this name was passed."""
        return any(it.name == name for held in self.seen.values() for it in held.passed)


class HoldLedger:
    """See the module. Methods raise MetaError, and have recorded nothing then."""

    def __init__(self, store: MetaStore, rule: HoldRule, wall_ms: Callable[[], int]) -> None:
        self._records = RemovedRecords(store)
        self._rule = rule
        self._wall_ms = wall_ms
        self._known: dict[PChannelName, RemovedRecord] | None = None
        self._holders: dict[PChannelName, tuple[Holding, ...]] = {}

    async def starts(self) -> Mapping[PChannelName, LogStart]:
        """Where each log may begin by now: no cursor is set to a place below."""
        return {name: it.start for name, it in (await self._load()).items()}

    async def passed(self, kind: HolderKind, name: str, pchannel: PChannelName) -> Passed | None:
        """Why a holder was passed, if that is known; also of one that has moved on since."""
        record = (await self._load()).get(pchannel, RemovedRecord())
        return next((it for it in record.passed if (it.kind, it.name) == (kind, name)), None)

    async def held_back(self, cursors: Cursors) -> Mapping[PChannelName, HeldBack]:
        """Who holds back what, as the owners reported last, and who was passed and is still."""
        records, by_name = await self._load(), {it.name: it for it in cursors}
        found = {}
        for name in sorted({*records, *self._holders}):
            record = records.get(name, RemovedRecord())
            passed = without_those_that_moved(record.passed, by_name, name, record.start)
            found[name] = HeldBack(self._holders.get(name, ()), passed)
        return found

    def held_by(self, kind: HolderKind, name: str) -> int:
        """The bytes that a holder holds back, on all pchannels, as their owners reported last."""
        return sum(
            it.bytes
            for holders in self._holders.values()
            for it in holders
            if (it.kind, it.name) == (kind, name)
        )

    async def holds(
        self, starts: Mapping[PChannelName, LogStart], cursors: Cursors
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        """The holds on these pchannels, whose logs begin there. One that was passed has none."""
        await self._note(starts, cursors)
        limits, records = self._rule.now, await self._load()
        found: dict[PChannelName, list[Hold]] = {name: [] for name in starts}
        for name, holds in found.items():
            start = records[name].start if name in records else LogStart()
            for cursor in cursors:
                hold = hold_of(cursor, name, limits)
                if hold is not None and name not in lost_on(cursor, {name: start}):
                    holds.append(hold)
        return found

    async def allow(
        self, removals: Mapping[PChannelName, Removal], cursors: Cursors
    ) -> Collection[PChannelName]:
        """Record the removals and who is passed by them; those that no other hold forbids."""
        allowed, records = [], {}
        known, by_name = await self._load(), {it.name: it for it in cursors}
        for name, removal in removals.items():
            self._holders[name] = removal.holders[:HOLDERS_MAX]
            if not removal.holders:
                del self._holders[name]
            if removal.tick:
                before = known.get(name, RemovedRecord())
                if not self._agrees(name, removal, before.start, cursors):
                    continue
                after = before.start.joined(LogStart(removal.first_id, removal.tick))
                # Anew: a cursor that was passed again has another cause by now.
                again = {(it.kind, it.name) for it in removal.passed}
                kept = [it for it in before.passed if (it.kind, it.name) not in again]
                left = without_those_that_moved((*kept, *removal.passed), by_name, name, after)
                records[name] = RemovedRecord(after, left[-PASSED_MAX:])
            allowed.append(name)
        await self._save(records)
        return allowed

    def _agrees(
        self, name: PChannelName, removal: Removal, before: LogStart, cursors: Cursors
    ) -> bool:
        """Whether each cursor that the removal takes something from is one that it passes."""
        # By its limit too: a cursor that has moved since then may hold again.
        passed = {(it.name, it.cause, it.limit) for it in removal.passed}
        after = {name: before.joined(LogStart(removal.first_id, removal.tick))}
        for cursor in cursors:
            hold = hold_of(cursor, name, self._rule.now)
            if hold is None or lost_on(cursor, {name: before}) or not lost_on(cursor, after):
                continue
            by_limit = {
                (cursor.name, PassCause.BYTES, hold.bytes_max),
                (cursor.name, PassCause.TIME, hold.until_ms),
            }
            if not by_limit & passed:
                return False
        return True

    async def _note(self, starts: Mapping[PChannelName, LogStart], cursors: Cursors) -> None:
        """Record removals that were not asked for, and the cursors that they passed."""
        known, records = await self._load(), {}
        for name, start in starts.items():
            before = known.get(name, RemovedRecord())
            after = before.start.joined(start)
            if after == before.start:
                continue
            lost = [
                Passed(
                    HolderKind.CURSOR,
                    it.name,
                    PassCause.UNASKED,
                    0,
                    0,
                    after.removed_tick,
                    self._wall_ms(),
                )
                for it in cursors
                if hold_of(it, name, self._rule.now) is not None
                and lost_on(it, {name: after})
                and not lost_on(it, {name: before.start})
            ]
            records[name] = RemovedRecord(after, (*before.passed, *lost)[-PASSED_MAX:])
        await self._save(records)

    async def _load(self) -> Mapping[PChannelName, RemovedRecord]:
        # Read once: nobody else writes them while this process leads.
        if self._known is None:
            self._known = dict(await self._records.list())
        return self._known

    async def _save(self, records: Mapping[PChannelName, RemovedRecord]) -> None:
        for name, record in records.items():
            await self._records.save({name: record})
            assert self._known is not None
            self._known[name] = record
