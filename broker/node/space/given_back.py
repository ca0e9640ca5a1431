"""What readers of a pchannel must know of what was dropped and purged there."""

from dataclasses import replace

import anyio

from broker.core.log.delivery import Selection
from broker.core.space.purges import PurgeTable
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.model.position import ReadPosition
from broker.ports.row_schemas import RowSchemas

ANSWER_S = 5.0


class ReadablePart:
    """For one consumer: its selection without what was purged of the vchannels that it reads."""

    def __init__(self, selection: Selection, purges: PurgeTable) -> None:
        self._plain = self._above = selection
        self._purges, self._version = purges, purges.version
        self._known = purges.floors()

    @property
    def selection(self) -> Selection:
        """What there is to read now."""
        if not self._purges.purges:
            return self._plain
        if self._version != self._purges.version or self._above is self._plain:
            self._version = self._purges.version
            self._above = replace(self._plain, purged=self._purges.floors())
        return self._above

    def refusal(self, cursor: ReadPosition) -> Refusal | None:
        """Why a consumer that is there cannot go on: what follows is purged, and it was to read it.

        Not for one of a whole pchannel, nor for one that began at the oldest message, after the
        purge or by another connection: it takes whatever is left.
        """
        if not self._purges.purges or cursor.oldest:
            return None
        chosen = self._plain
        names = (chosen.vchannel,) if chosen.vchannel else chosen.among or ()
        takes_what_is_left = cursor.partial and not chosen.floor
        read_to = max(cursor.tick, chosen.floor)
        for name in names:
            purge = self._purges.purges.get(name)
            if purge is None or (takes_what_is_left and purge.upto <= self._known.get(name, 0)):
                continue
            if read_to < purge.upto and cursor.next_id < purge.next_id:
                return Refusal(
                    StreamingCode.UNRECOVERABLE,
                    f"removed by a purge: the messages of {name} up to tick {purge.upto} are gone,"
                    f" and message id {cursor.next_id} lies before them; read from id"
                    f" {purge.next_id} on, or from the oldest message that is left",
                )
        return None


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
