"""Copies the logs of a process to another place, and switches each to its copy.

The place of a pchannel changes by one write that names the term of its owner, after both logs were
found equal while nobody appended. A crash before it leaves the source as the log, and the next
owner copies on; after it the target. Why nothing is lost: README.md.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import structlog

from actors import PlannedRestart
from broker.app.stores.stored_places import Overtaken, StoredPlaces
from broker.app.switching.log_drivers import LogDrivers, Markers
from broker.app.switching.switch_pauses import SwitchPauses, grown_s
from broker.core.cluster.wal_alter import (
    SEGMENTED,
    Alter,
    AlterStage,
    ChannelAlter,
    Task,
    began_copy,
    copied,
    ended,
    failed,
    shown,
    spoiled,
    switched,
    task_of,
)
from broker.model.ids import MessageId, PChannelName
from broker.ports.meta import MetaError
from broker.ports.switching.log_copies import CopyTarget
from broker.ports.switching.log_switch import AtRest
from broker.ports.wal import (
    Corrupt,
    Fenced,
    Log,
    LogClosed,
    UnknownFormat,
    Unsuitable,
    WalError,
    WriterFailed,
)
from broker.wal.alter.log_copy import CLOSE_BYTES, CopyDiffers, LogCopy
from broker.wal.alter.placed_log import PlacedLog

STEP_S: Final = 0.2
FEW_BYTES: Final = 64 * 1024
RECORD_S: Final = 1.0
"""How often the progress of a copy is recorded."""
AWAY_S_MAX: Final = 600.0
"""A log in Kafka that was switched from is left there when it cannot be emptied for so long."""
ABORT_S_MAX: Final = 60.0
"""So is a copy. Sooner: until then nothing else can be begun, and the next switch empties it."""

notes = structlog.get_logger("tidemark")

Settled = Callable[[], Awaitable[None]]


async def no_news() -> None:
    """The default: nobody wants to know that a switch has ended."""


class NextTerm(PlannedRestart):
    """The pchannel opens its log again, at the next term, where the metadata says that it lies."""


class ChannelSwitch:
    """Implements `ports.switching.log_switch.LogSwitch`.

    `settled` is called when a switch has ended. `now_s` is a monotonic clock.
    """

    def __init__(
        self,
        places: StoredPlaces,
        drivers: LogDrivers,
        markers: Markers,
        settled: Settled = no_news,
        now_s: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._places, self._drivers, self._markers = places, drivers, markers
        self._settled, self._now_s = settled, now_s
        self._alter: Alter | None = None
        self._told_end = 0
        """Number of the newest switch after whose end `settled` was called, and did not fail."""
        self._known: dict[PChannelName, ChannelAlter] = {}
        self._stepped: set[PChannelName] = set()
        """Since the last look."""
        self._pauses = SwitchPauses(now_s)
        self._renewals: Counter[PChannelName] = Counter()
        """Restarts for the place that could not be opened since."""
        self._spoils: Counter[PChannelName] = Counter()
        """Copies that were found to differ, in this switch."""

    async def look(self) -> bool:
        self._stepped.clear()
        before, self._alter = self._alter, await self._places.alter()
        if self._alter is None:
            return False
        if self._alter.ended and self._alter == before and self._alter.number == self._told_end:
            return False
        if before is None or before.number != self._alter.number:
            # What an earlier switch met says nothing about the target of this one.
            self._renewals.clear()
            self._spoils.clear()
            self._pauses.clear()
        if before is None or before.stage is not self._alter.stage:
            notes.info(
                "switch of the log",
                stage=self._alter.stage.name.lower(),
                source=shown(self._alter.source),
                target=shown(self._alter.target),
            )
        return True

    async def step(self, name: PChannelName, log: Log, at_rest: AtRest) -> bool:
        alter = self._alter
        if alter is None or not isinstance(log, PlacedLog):
            return False
        channel = await self._places.channel(name, alter)
        self._known[name] = channel
        self._stepped.add(name)
        try:
            return await self._do(task_of(alter, channel), name, log, at_rest)
        except Overtaken:
            return True
        except WalError as error:
            await self._failed(name, log, error)
            return False

    def warnings(self) -> Sequence[str]:
        """See LogSwitch. All pchannels most often have the same."""
        if self._alter is None or self._alter.ended:
            return ()
        found = {it.trouble for it in self._known.values() if it.number == self._alter.number}
        return [f"the switch of the log does not go on: {it}" for it in sorted(found - {""})]

    async def advance(self) -> None:
        # The others have another owner by now, who tells their trouble.
        self._known = {it: self._known[it] for it in self._stepped}
        alter = await self._places.advance()
        if alter is not None and alter.ended:
            await self._settled()
            self._told_end = alter.number

    async def _do(self, task: Task, name: PChannelName, log: PlacedLog, at_rest: AtRest) -> bool:
        match task:
            case Task.COPY:
                goes_on = await self._copy_some(name, log, at_rest)
                return goes_on and not self._known[name].close
            case Task.SWITCH:
                goes_on = await self._copy_some(name, log, at_rest)
                if goes_on and self._known[name].close:
                    self._markers.mark(self._switch.target)
                    await at_rest(partial(self._switch_now, name, log))
                return goes_on
            case Task.DROP:
                return await self._drop(name, log, at_rest)
            case Task.DISCARD:
                return await self._discard(name, log, at_rest)
            case Task.NOTHING:
                log.release()
                return False

    @property
    def _switch(self) -> Alter:
        assert self._alter is not None
        return self._alter

    async def _copy_some(self, name: PChannelName, log: PlacedLog, at_rest: AtRest) -> bool:
        """Go on with the copy for a moment; False if there is none before the next term."""
        if log.copy is None and not self._known[name].begun:
            # What lies there is of no use, and may be what takes the room.
            if not await self._may_remove(name, log, self._switch.target, at_rest):
                return False
            await self._drivers.remove(self._switch.target, name, log.term)
            await anyio.to_thread.run_sync(self._drivers.check_room, self._switch.target)
        await log.hold()
        copy = await self._copy_of(name, log, at_rest)
        if copy is None:
            return False
        # Each time, but behind a begin, which may free some: the rest is for what serves.
        await anyio.to_thread.run_sync(self._drivers.check_room, self._switch.target)
        until_s, steps = self._now_s() + STEP_S, 0
        while not copy.is_whole and self._now_s() < until_s:
            if steps >= 2 and copy.left_bytes < FEW_BYTES:
                break  # appends come as fast as they can be copied: the rest is for the pause
            began_s = self._now_s()
            async with log.turn:
                await copy.step()
            steps += 1
            # Half of a core at most: appends need the interpreter and the disk, too.
            await anyio.sleep(min(self._now_s() - began_s, STEP_S))
        await self._note(name, log, copy)
        return True

    async def _copy_of(self, name: PChannelName, log: PlacedLog, at_rest: AtRest) -> LogCopy | None:
        """The copy that is under way, or a new one; None: not before the next term."""
        channel, copy = self._known[name], log.copy
        if copy is None:
            try:
                target = await self._opened(name, log, self._switch.target, at_rest)
            except (Corrupt, UnknownFormat) as damage:
                if not channel.begun:
                    raise  # it is no copy yet
                found = f"it cannot be opened: {damage}"
                raise CopyDiffers(channel.checked_id, found) from damage
            if target is None:
                return None
            copy = LogCopy(log.driver, target, channel.checked_id)
            log.copy = copy  # before the next await: whoever closes the log closes the copy
        # Each time: to begin may have failed half way, or not have been recorded.
        if not channel.begun or not copy.fits:
            # What spoiled a copy may do so again.
            spoils = self._spoils[name]
            if spoils and not self._pauses.is_due("begin", name, grown_s(spoils - 1)):
                return None
            await copy.begin()
            first_id = copy.checked_id
            self._known[name] = await self._places.change(
                name, log.term, self._switch.stage, lambda it: began_copy(it, first_id)
            )
        return copy

    async def _opened(
        self, name: PChannelName, log: PlacedLog, place: str, at_rest: AtRest
    ) -> CopyTarget | None:
        """The log at another place, opened at this term; None: not before the next one.

        A term opens a log once. So after a failure the pchannel is opened again, when the place
        takes writes.
        """
        # On a thread: a client library may have to be loaded.
        driver = await anyio.to_thread.run_sync(self._drivers.at, place)
        stage = self._switch.stage
        removes = stage in (AlterStage.DROPPING, AlterStage.ABORTING)
        goes_on = self._known[name].begun and not removes
        if not log.spent:
            log.spent = True
            try:
                opening = driver.open if goes_on else driver.open_anew
                opened = await opening(name, log.term)
            except Unsuitable:
                log.spent = False  # refused before anything was claimed
                raise
            log.spent = False
            self._renewals.pop(name, None)
            return opened
        if not self._pauses.is_due("renew", name, grown_s(self._renewals[name])):
            return None
        if not await driver.why_unwritable(name):
            self._renewals[name] += 1
            await self._restart(name, at_rest)
        return None

    async def _restart(self, name: PChannelName, at_rest: AtRest) -> None:
        async def restart() -> None:
            raise NextTerm(f"{name}: the switch of its log goes on at the next term")

        await at_rest(restart)

    async def _note(self, name: PChannelName, log: PlacedLog, copy: LogCopy) -> None:
        """Record how far the copy is, from time to time, and when it has come close."""
        before = self._known[name]
        close = copy.left_bytes <= CLOSE_BYTES
        news = close != before.close or before.trouble
        moved = copy.checked_id != before.checked_id
        if not (news or (moved and self._pauses.is_due("note", name, RECORD_S))):
            return
        ids = copy.copied_id, copy.checked_id, copy.source.bounds().next_id
        self._known[name] = await self._places.change(
            name, log.term, self._switch.stage, lambda it: copied(it, *ids, close=close)
        )

    async def _switch_now(self, name: PChannelName, log: PlacedLog) -> None:
        """Let the copy take the appends. Called while nobody appends."""
        async with log.turn:
            copy = log.copy
            if copy is None or not await copy.rest():
                return
            # The records of others, of older terms, are behind: its own segments begin here.
            await copy.target.seal()
            await self._record_place(name, log, copy.copied_id)
            log.switch_over(self._switch.target)

    async def _record_place(self, name: PChannelName, log: PlacedLog, next_id: MessageId) -> None:
        try:
            await self._places.change(
                name, log.term, AlterStage.SWITCHING, lambda it: switched(it, next_id)
            )
        except MetaError as error:
            # It was written, or not: appends to either log might be lost.
            try:
                if (await self._places.channel(name, self._switch)).switched:
                    return
            except MetaError:
                text = f"{name}: it is not known where its log is: {error}"
                raise NextTerm(text) from error
            raise

    async def _drop(self, name: PChannelName, log: PlacedLog, at_rest: AtRest) -> bool:
        """Forget the log that was switched from, once nobody reads it any more."""
        alter = self._switch
        if log.retired_in_use:
            return False
        if self._is_long_away(name, alter.source, AWAY_S_MAX):
            await self._leave(name, log, alter.source)
            return True
        if not alter.leaves_history and not await self._removed(name, log, alter.source, at_rest):
            return False
        await self._end(name, log)
        return True

    async def _discard(self, name: PChannelName, log: PlacedLog, at_rest: AtRest) -> bool:
        """Forget the copy. One in a Kafka that is away stays: the next switch empties it."""
        log.release()  # nothing is copied from it any more
        place, copy = self._switch.target, log.copy
        gone = copy is None and place != SEGMENTED and log.spent
        if gone or self._is_long_away(name, place, ABORT_S_MAX):
            await self._leave(name, log, place)
            return True
        if copy is not None and log.retired is None:
            log.copy, log.retired = None, copy.target
        try:
            removed = await self._removed(name, log, place, at_rest)
        except Unsuitable:
            log.spent = True  # the next look leaves it there, like one that is away
            raise
        if removed:
            await self._end(name, log)
        return removed

    async def _removed(
        self, name: PChannelName, log: PlacedLog, place: str, at_rest: AtRest
    ) -> bool:
        """Remove `log.retired`, or what lies at the place while that is None; False: not yet."""
        if not await self._may_remove(name, log, place, at_rest):
            return False
        if log.retired is None:
            if await self._drivers.remove(place, name, log.term):
                return True
            log.retired = await self._opened(name, log, place, at_rest)
        if log.retired is None:
            return False
        await log.retired.discard()
        return True

    async def _may_remove(
        self, name: PChannelName, log: PlacedLog, place: str, at_rest: AtRest
    ) -> bool:
        """Whether the open log lies elsewhere, as the metadata says; if not, it opens anew."""
        if log.place == place:
            await self._restart(name, at_rest)
        return log.place != place

    async def _leave(self, name: PChannelName, log: PlacedLog, place: str) -> None:
        """End without a log of no use, which cannot be emptied."""
        text = f"messages may be left in {shown(place)}: {self._known[name].trouble}"
        notes.warning(text, pchannel=name)
        await self._end(name, log)

    async def _end(self, name: PChannelName, log: PlacedLog) -> None:
        await log.forget_retired()
        log.release()
        await self._places.change(name, log.term, self._switch.stage, ended)
        self._markers.settle(self._switch.place)

    async def _failed(self, name: PChannelName, placed: PlacedLog, error: WalError) -> None:
        """Record what keeps the pchannel from going on, and give up a log that is of no use."""
        if isinstance(error, LogClosed):
            return
        if isinstance(error, Fenced | WriterFailed):
            await placed.abandon()
        text, record = str(error), failed
        if isinstance(error, CopyDiffers):
            # Only copies of pchannels that have not switched are compared: the log has it all.
            record = spoiled
            self._spoils[name] += 1
            self._pauses.begin("begin", name)
        if self._known[name].trouble != text:
            notes.warning("cannot go on with the switch of the log", pchannel=name, why=text)
            with suppress(Overtaken):
                self._known[name] = await self._places.change(
                    name, placed.term, self._switch.stage, lambda it: record(it, text)
                )

    def _is_long_away(self, name: PChannelName, place: str, s_max: float) -> bool:
        """Whether a Kafka that nobody needs any more has not done its part for so long."""
        waited_s = self._pauses.waited_s("drop", name)
        return place != SEGMENTED and bool(self._known[name].trouble) and waited_s > s_max
