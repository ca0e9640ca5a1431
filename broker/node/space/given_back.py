"""What readers of a pchannel must know of what was dropped and purged there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio

from broker.core.log.delivery import Selection
from broker.core.space.purged_messages import is_message
from broker.core.space.purges import PurgeTable
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.position import ReadPosition
from broker.model.retention.purge import Purge
from broker.node.state.open_channels import OpenChannel
from broker.ports.row_schemas import RowSchemas

ANSWER_S = 5.0
LOOKS_MAX: Final = 16
"""Reads of the log, of up to 4 MiB each, that look whether a reader misses anything."""


class ReadablePart:
    """For one consumer: its selection without what was purged of the vchannels that it reads."""

    def __init__(self, selection: Selection, purges: PurgeTable) -> None:
        self._plain = self._above = selection
        self._purges, self._version = purges, purges.version
        self._checked = purges.version
        self._has_all: dict[str, tuple[TimeTick, MessageId]] = {}
        """Up to which tick nothing is missing for whoever is at this id or behind it."""

    @property
    def selection(self) -> Selection:
        """What there is to read now."""
        if not self._purges.purges:
            return self._plain
        if self._version != self._purges.version or self._above is self._plain:
            self._version = self._purges.version
            self._above = replace(self._plain, purged=self._purges.floors())
        return self._above

    def begun(self, cursor: ReadPosition) -> ReadPosition:
        """The cursor; of a partial reader that was given nothing yet, with what is purged now."""
        if not (cursor.partial and cursor.open_id is None and self._purges.purges):
            return cursor
        return replace(cursor, purged=self._purges.newest_tick())

    async def refusal(self, cursor: ReadPosition, channel: OpenChannel) -> Refusal | None:
        """Why a consumer that is there cannot go on: what follows is purged, and it was to read it.

        Not for one of a whole pchannel, nor for one that began at the oldest message after the
        purge: it takes whatever is left. One that misses nothing goes on: a purge says what its
        newest message was. Only where that is not known, and so much was stored meanwhile, or given
        back, that nobody can tell, a reader that misses nothing is refused, too.
        """
        # Before the first await: what is purged during the check may not be part of it.
        self._checked = self._purges.version
        if not self._purges.purges or cursor.oldest:
            return None
        try:
            for purge in self._passed_by(cursor):
                if await self._misses(cursor, purge, channel):
                    return _removed(cursor, purge)
        except Refused as error:
            return error.refusal
        return None

    def is_checked(self) -> bool:
        """Whether the last `refusal` has checked every purge that `selection` leaves out."""
        return self._checked == self._purges.version

    def _passed_by(self, cursor: ReadPosition) -> Sequence[Purge]:
        """The purges that reach beyond the cursor."""
        chosen = self._plain
        names = (chosen.vchannel,) if chosen.vchannel else chosen.among or ()
        takes_what_is_left = cursor.partial and not chosen.floor
        read_to = max(cursor.tick, chosen.floor)
        found = [purge for name in names if (purge := self._purges.purges.get(name)) is not None]
        return [
            it
            for it in found
            if read_to < it.removes_upto
            and cursor.next_id < it.next_id
            and not (takes_what_is_left and it.tick <= cursor.purged)
        ]

    async def _misses(self, cursor: ReadPosition, purge: Purge, channel: OpenChannel) -> bool:
        upto, from_id = self._has_all.get(purge.vchannel, (TimeTick(0), MessageId(0)))
        if upto == purge.upto and cursor.next_id >= from_id:
            return False
        read_to = max(cursor.tick, self._plain.floor)
        if await _may_be_missing(cursor, read_to, purge, channel):
            return True
        self._has_all[purge.vchannel] = purge.upto, cursor.next_id
        return False


async def gone_to(vchannel: str, purges: PurgeTable, catalog: RowSchemas) -> TimeTick:
    """Up to which tick records of a vchannel may be missing: it was purged or dropped; 0: none.

    Raises Refused when the catalog does not answer.
    """
    try:
        with anyio.fail_after(ANSWER_S):
            dropped = await catalog.dropped_at(vchannel) or TimeTick(0)
            return max(dropped, purges.upto(vchannel))
    except TimeoutError as error:
        cause = f"the catalog did not say within {ANSWER_S:g} s whether {vchannel} was dropped"
        raise Refused(StreamingCode.INNER, f"{cause}; try again") from error


async def _may_be_missing(
    cursor: ReadPosition, read_to: TimeTick, purge: Purge, channel: OpenChannel
) -> bool:
    """Whether a message was purged that lies between the cursor and the end of the purge.

    True also when records are missing there, or when there is too much to look at.
    """
    at = cursor.next_id
    if cursor.inside:
        return True
    for _ in range(LOOKS_MAX):
        heads = await channel.heads(at)
        for it in heads:
            if at >= purge.next_id:
                return False
            if it.base_id > at or (is_message(it, purge.vchannel) and it.last_tick > read_to):
                return True
            at = it.next_id
        if not heads or at >= purge.next_id:
            return at < purge.next_id
    return True


def _removed(cursor: ReadPosition, purge: Purge) -> Refusal:
    return Refusal(
        StreamingCode.UNRECOVERABLE,
        f"removed by a purge: the messages of {purge.vchannel} up to tick {purge.upto} are gone,"
        f" and message id {cursor.next_id} lies before them; read from id {purge.next_id} on, or"
        " from the oldest message that is left",
    )
