"""Time ticks for all pchannels of a node, from ranges reserved at the oracle.

Ticks are given out once and only grow. Unused ones are dropped.

Next: broker/node/state/node_runtime.py
"""

import anyio

from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.ports.ticks import RESERVE_COUNT_MAX, TickSource

RESERVED_COUNT = RESERVE_COUNT_MAX // 2
"""Ticks per request to the oracle: more than a group takes, so that groups rarely wait for one. A
millisecond of hybrid time holds eight times as many."""

AGE_S_MAX = 0.01
"""An older range is dropped: a tick carries its wall time, by which readers judge how old their
newest closed tick is."""


class _Refill:
    """A request to the oracle under way. `refusal`: set before `done` when it failed."""

    __slots__ = ("done", "refusal")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.refusal: Refusal | None = None


class TickCache:
    """Shared by the Appenders of one node, on one event loop."""

    def __init__(self, source: TickSource) -> None:
        self._source = source
        self._next = 0
        self._left = 0
        self._reserved_s = 0.0
        self._drops = 0
        self._refilling: _Refill | None = None

    async def take(self, count: int, now_s: float, above: TimeTick = TimeTick(0)) -> TimeTick:
        """The first of `count` contiguous ticks, greater than all given out before.

        They exceed `above` too, if the oracle has ever given that out. Raises what the source
        raises, and Refused(INNER) when the oracle goes backwards.
        """
        assert 1 <= count <= RESERVE_COUNT_MAX, count
        if self._has(count, now_s, above):  # the usual case: no lock and no await
            return self._given(count)
        while True:
            if self._refilling is None:
                await self._refill(max(count, RESERVED_COUNT), now_s)
                # Else `drop` was called while the oracle answered: those ticks may be too small.
                if self._left:
                    return self._given(count)
            else:
                await self._refilled(self._refilling)
                if self._has(count, now_s, above):
                    return self._given(count)

    def passed(self, tick: TimeTick) -> bool:
        """Whether every tick given out from now on is above this one, as far as is known here."""
        return self._next > tick

    def drop(self) -> None:
        """Forget ticks reserved or being reserved now; for an Appender that takes over a pchannel.

        Its predecessor may have closed ticks that no record holds. Only ticks reserved from now on
        are certainly larger.
        """
        self._left = 0
        self._drops += 1

    def _has(self, count: int, now_s: float, above: TimeTick) -> bool:
        fresh = now_s - self._reserved_s <= AGE_S_MAX
        return fresh and self._left >= count and self._next > above

    def _given(self, count: int) -> TimeTick:
        first = TimeTick(self._next)
        self._next += count
        self._left -= count
        return first

    async def _refilled(self, refill: "_Refill") -> None:
        """Wait for the request of another caller; all that wait for it continue at once."""
        await refill.done.wait()
        # Else the callers would wait for the timeout of the oracle one after the other.
        if refill.refusal is not None:
            raise Refused(refill.refusal.code, refill.refusal.cause)

    async def _refill(self, count: int, now_s: float) -> None:
        refill = self._refilling = _Refill()
        try:
            await self._reserve(count, now_s)
        except Refused as error:
            refill.refusal = error.refusal
            raise
        finally:
            self._refilling = None
            refill.done.set()

    async def _reserve(self, count: int, now_s: float) -> None:
        drops = self._drops
        reserved = await self._source.reserve(count)
        if reserved.first < self._next:
            cause = f"the oracle went backwards, from tick {self._next} to {reserved.first}"
            raise Refused(StreamingCode.INNER, cause)
        # Aged from before the request: the oracle may have read its clock at any time since.
        self._next, self._reserved_s = reserved.first, now_s
        self._left = reserved.count if drops == self._drops else 0
