"""What a query subscribes to: its vchannels, its columns, and where it starts.

Next: broker/spark/gateway.py
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from broker.client import Cut, InvalidArgument
from broker.client.errors import NoSuchCursor, NoSuchGroup, NoSuchVChannel
from broker.model.ids import MessageId, TimeTick
from broker.spark.gateway import Gateway
from broker.spark.refusals import BadOption, DataLoss
from broker.spark.source import columns, message_rows
from broker.spark.source.bounds import At, AtCursor, AtGroup, Bound, Each, FromId, Start
from broker.spark.source.cut_offsets import (
    Position,
    at_cut,
    check_subscription,
    position_of,
    to_position,
)
from broker.spark.source.named_collections import NamedCollections
from broker.spark.source.source_options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from broker.client import Measurement

Shape = columns.RowShape | message_rows.MessageShape
log = logging.getLogger("tidemark.spark")


def declared(options: Options) -> "StructType":
    """Return the schema of a query with these options. Raises BadOption and BadColumns."""
    gateway = Gateway(options.server)
    try:
        return NamedCollections(gateway, options).declared()
    finally:
        gateway.close()


class Subscribed:
    """The subscription of a query; the broker is asked when it is first needed.

    May be pickled before and after that; each process connects by itself.
    """

    def __init__(self, options: Options, declared: "StructType") -> None:
        self.options = options
        self.gateway = Gateway(options.server)
        self.proven = False
        """Whether executors have read from the server: when it is silent, it is only away."""
        self._declared = declared
        self._named = NamedCollections(self.gateway, options)
        self._shapes: dict[str | None, Shape] = {}
        self._measured: tuple[Sequence[str], Measurement] | None = None
        self._exact: dict[str, int] = {}
        """Vchannels of which the start names a tick, behind which nothing may be missing."""

    @property
    def vchannels(self) -> list[str]:
        """All vchannels, each once; those of a pattern as of the last look."""
        return self._named.vchannels

    def look_again(self) -> None:
        """Find the collections anew that match a pattern. Raises BadColumns for a misfit."""
        if self.options.pattern and self._named.look_again():
            self._shapes.clear()
            for name in self.vchannels:
                self.shape_of([name])

    def with_columns(self, vchannel: str) -> str | None:
        """Return the collection of a vchannel when it has a schema, else None."""
        return self._named.with_columns(vchannel)

    def shape_of(self, vchannels: Sequence[str]) -> Shape:
        """How messages of these vchannels, all of one collection or of any without a schema, become
        the rows that the query declared. Raises BadColumns.
        """
        name = self._named.with_columns(vchannels[0])
        if name not in self._shapes:
            found = self._named.columns_of(vchannels[0])
            self._shapes[name] = (
                message_rows.MessageShape(self._named.collections, self._declared)
                if found is None
                else columns.RowShape(found, self._declared)
            )
        return self._shapes[name]

    def position(self, offset: Mapping[str, Any]) -> Position:
        """Return the position of an offset of this query. Raises BadCheckpoint."""
        position = to_position(offset)
        if not self.options.pattern:
            check_subscription(position, self.vchannels)
        return position

    def newest(self) -> Cut:
        """Return a cut behind everything that was acknowledged before the call."""
        return self.gateway.cut(self.vchannels)

    def joined(self, start: Position, newest: Cut) -> Position:
        """Return a position with the vchannels of a cut: new ones at their beginning.

        Raises DataLoss for unread rows of a collection that was dropped.
        """
        gone = [name for name in start.ends if name not in newest.ends]
        if gone:
            # The cut is one of other logs, which may be behind these.
            closed = [it.closed_tick for it in self.gateway.held(gone).values()]
            self._refuse_unread(start, gone, max(newest.tick, *closed))
            ends = {name: end for name, end in start.ends.items() if name in newest.ends}
            start = position_of({name: start.of(name) for name in ends}, ends) if ends else start
        new = [name for name in newest.ends if name not in start.ends]
        return start.joined(self._before_rows(new, newest.tick)) if new else start

    def remaining(self, start: Position, end: Position) -> list[str]:
        """Return the vchannels of an end but those that were dropped since it was chosen.

        Raises DataLoss when these had unread rows.
        """
        if not self.options.pattern:
            return list(end.ends)
        self.look_again()
        gone = [name for name in end.ends if name not in self.vchannels]
        for name in gone:
            # What lies behind the end is looked for when the next one is chosen.
            if start.of(name) < end.of(name):
                self._refuse_unread(start, [name], end.of(name))
        return [name for name in end.ends if name not in gone]

    def beginning_with(self, start: Position, end: Position) -> Position:
        """Return a start with all vchannels of an end: those it lacks from their beginning."""
        known = {name: it for name, it in end.began.items() if name not in start.ends}
        if known:
            ticks = {name: tick for name, (tick, _) in known.items()}
            start = start.joined(position_of(ticks, {name: id for name, (_, id) in known.items()}))
        # Of an offset that an earlier release has written.
        new = [name for name in end.ends if name not in start.ends]
        return start.joined(self._earliest(new)) if new else start

    def measure(
        self, names: Sequence[str], after: int, until: int, *, rows_max: int = 0, bytes_max: int = 0
    ) -> "Measurement":
        """Count what lies on vchannels behind a tick up to another; 0 is no limit."""
        found = self.gateway.measure(names, after, until, rows_max=rows_max, bytes_max=bytes_max)
        self._measured = names, found
        return found

    def measured(self, names: Sequence[str], after: int, until: int) -> "Measurement":
        """Return what lies between two ticks; already known when the end was just chosen."""
        if self._measured is not None:
            channels, known = self._measured
            if {*channels} == {*names} and (known.after, known.choice.tick) == (after, until):
                return known
        return self.measure(names, after, until)

    def unread(self, end: Position, newest: int) -> tuple[int, int]:
        """Count rows and bytes behind a position up to a tick."""
        rows = size = 0
        for tick in {end.of(name) for name in end.ends} - {newest}:
            names = [name for name in end.ends if end.of(name) == tick]
            if tick < newest:
                found = self.gateway.measure(names, tick, newest, rows_max=0, bytes_max=0).choice
                rows, size = rows + found.rows, size + found.bytes
        return rows, size

    def start(self, is_wanted: Callable[[str], bool] = lambda _: True, after: int = 0) -> Position:
        """Return the position at which the query starts now. Raises BadOption.

        DataLoss when it names ticks, and retention removed messages behind them of vchannels that
        are wanted, and behind the tick `after`.
        """
        self._exact = {}
        found = self.at(self.options.starting)
        exact = {name: max(tick, after) for name, tick in self._exact.items() if is_wanted(name)}
        # Now: when retention came further before the cuts, they are where the logs begin now.
        held = self.gateway.held([*exact]) if exact else {}
        lost = [
            f"messages behind tick {exact[name]} were removed from the log of {name}, which begins"
            f" at id {it.first_id} now"
            for name, it in held.items()
            if it.removed_tick > exact[name]
        ]
        self.tell(lost)
        return found

    def at(self, bound: Bound) -> Position:
        """Return the position that a bound means now. Raises BadOption for one in the future."""
        match bound:
            case Each():
                return self._at_each(bound)
            case AtCursor(cursor):
                return self._at_cursor(cursor)
            case AtGroup(group):
                return self._at_group(group)
            case _:
                return self._place(self.vchannels, bound)

    def _place(self, names: Sequence[str], start: Start) -> Position:
        if start == "latest":
            return at_cut(self.gateway.cut(names))
        if isinstance(start, FromId):
            (name,) = names
            return at_cut(self._before(name, start.message_id))
        # Tick 0 is below every message, so no cut has to be taken.
        if not isinstance(start, At) or start.tick == 0:
            return self._earliest(names)
        try:
            found = at_cut(self.gateway.cut(names, start.tick))
        except InvalidArgument as error:
            raise BadOption(start.option, start.text, f"it is in the future: {error}") from error
        if start.keeps_all:
            self._exact |= dict.fromkeys(names, start.tick)
        return found

    def tell(self, lost: Sequence[str]) -> None:
        """Raise DataLoss, or log what the query accepts."""
        if lost and self.options.fail_on_data_loss:
            raise DataLoss(lost)
        for sentence in lost:
            log.warning("tidemark: data loss accepted: %s", sentence)

    def _earliest(self, names: Sequence[str]) -> Position:
        """Return where the log begins; behind what was purged, so that a later purge is noticed."""
        held = self.gateway.held(names)
        found = at_cut(
            Cut(TimeTick(0), {name: MessageId(it.first_id) for name, it in held.items()})
        )
        for name, it in held.items():
            if it.purged_tick:
                cut = self.gateway.cut([name], it.purged_tick)
                found = found.then(cut) if cut.ends[name] > it.first_id else found
        return found

    def _before_rows(self, names: Sequence[str], newest: TimeTick) -> Position:
        """Return a place before the first rows of collections, close to them.

        Where a log begins would be too early: when retention takes what lies there, which is of
        others, a replay could not tell that from a loss. Only there, though, is the beginning of
        what retention or a purge has taken some of already.
        """
        created = {name: self._named.created_after(name) for name in names}
        after = min(*created.values(), newest - 1)
        found = self.gateway.measure(names, after, newest, rows_max=1, bytes_max=0)
        firsts = [steps[0].first_tick - 1 for steps in found.steps.values() if steps]
        # Not 0, which would be the newest cut.
        cut = self.gateway.cut(names, max(1, min([found.choice.tick, *firsts])))
        # After the cut: its ids are those of the tick when nothing behind that was removed.
        held = self.gateway.held(names)
        cut_short = [
            name for name, it in held.items() if it.purged_tick or it.removed_tick > created[name]
        ]
        return at_cut(cut).joined(self._earliest(cut_short)) if cut_short else at_cut(cut)

    def _before(self, name: str, message_id: int) -> Cut:
        """Return the cut before the first message of a vchannel with this id or a larger one."""
        held = self.gateway.held([name])[name]
        if not held.first_id <= message_id <= held.next_id:
            advice = f"the log of {name} holds ids [{held.first_id}, {held.next_id})"
            raise BadOption("startingOffsets", message_id, f"{advice}; or use earliest or latest")
        tick = self.gateway.first_tick(name, message_id)
        # Nothing is there yet: what comes has a larger tick than the newest cut.
        return self.gateway.cut([name], None if tick is None else tick - 1)

    def _at_each(self, each: Each) -> Position:
        by_start: dict[Start, list[str]] = {}
        for name, start in self._named.starts(each).items():
            by_start.setdefault(start, []).append(name)
        ticks: dict[str, TimeTick] = {}
        ends: dict[str, MessageId] = {}
        for start, names in by_start.items():
            # An id is one of a single log.
            for some in [[name] for name in names] if isinstance(start, FromId) else [names]:
                place = self._place(some, start)
                ticks |= {name: place.of(name) for name in some}
                ends |= place.ends
        return position_of(ticks, ends)

    def _at_cursor(self, cursor: str) -> Position:
        try:
            ticks = self.gateway.cursor_ticks(cursor)
        except NoSuchCursor as error:
            raise BadOption("startingCursor", cursor, f"{error}") from error
        return self._behind(ticks, "startingCursor", cursor)

    def _at_group(self, group: str) -> Position:
        try:
            ticks = self.gateway.group_ticks(group, self.vchannels)
        except NoSuchGroup as error:
            raise BadOption("startingGroup", group, f"{error}") from error
        return self._behind(ticks, "startingGroup", group)

    def _behind(self, ticks: Mapping[str, int], option: str, text: str) -> Position:
        """Return the position behind these ticks, one for each vchannel."""
        missing = [name for name in self.vchannels if name not in ticks]
        if missing:
            advice = f"it has no position on {missing[:8]}; give startingOffsets for each vchannel"
            raise BadOption(option, text, advice)
        each = {name: At(ticks[name], option, text, keeps_all=True) for name in self.vchannels}
        return self._at_each(Each(each, text))

    def _rows(self, name: str, after: int, until: int) -> int:
        if after >= until:
            return 0
        try:
            return self.measure([name], after, until).choice.rows
        except NoSuchVChannel:
            return 0  # nothing was ever appended to it

    def _refuse_unread(self, start: Position, gone: Sequence[str], newest: TimeTick) -> None:
        """Raise DataLoss when rows of vchannels that match no longer were not read."""
        lost = [
            f"{name} of a dropped collection has {rows} unread rows"
            for name in gone
            if (rows := self._rows(name, start.of(name), newest))
        ]
        # After the count: what is removed in between was counted.
        held = self.gateway.held(gone)
        lost += [
            f"{name} of a dropped collection had unread rows up to tick {it.purged_tick}, which are"
            " removed"
            for name, it in held.items()
            if start.of(name) < it.purged_tick
        ]
        self.tell(lost)
