"""Stores the bound of the oracle, so that requests for ticks need not wait for the store."""

from collections.abc import Sequence
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.coordinator.records import TICK_BOUND_KEY, decode_number, encode_number
from broker.coordinator.time.messages import (
    ExtendWindow,
    OpenWindow,
    WindowGranted,
    WindowMessage,
)
from broker.core.time import tso
from broker.model.failure import Refused, StreamingCode
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore


class TickWindow(Actor[WindowMessage]):
    """Grants windows; no two holders over the same store ever share a millisecond."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._saved: tuple[int, int] | None = None
        """The bound that this incarnation stored, and its revision; None: read it first."""

    async def started(self, context: Context[WindowMessage]) -> None:
        self._clock = context.clock

    async def receive(self, batch: Sequence[Envelope[WindowMessage]]) -> None:
        for envelope in batch:
            try:
                match envelope.message:
                    case OpenWindow():
                        envelope.reply(await self._grant(held_ms=-1, wanted_ms=0))
                    case ExtendWindow(held_ms, bound_ms):
                        envelope.reply(await self._grant(held_ms, bound_ms))
                    case message:
                        assert_never(message)
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    async def _grant(self, held_ms: int, wanted_ms: int) -> WindowGranted:
        """Extend the bound to `wanted_ms`, or open a new window when the holder lost its own."""

        async def attempt() -> WindowGranted:
            # The common case: nobody else has written since, so there is nothing to read. If
            # somebody has, the write is refused, and the next attempt reads.
            saved_ms, revision = self._saved or await self._read()
            self._saved = None
            bound_ms = wanted_ms
            if saved_ms != held_ms:
                bound_ms = max(wanted_ms, tso.first_bound(saved_ms, self._clock.wall_ms()))
            # The window is handed out only after its bound is durable: a restarted oracle starts
            # above the stored bound, so it cannot repeat a tick of this window.
            written = await self._store.write(
                {TICK_BOUND_KEY: encode_number(bound_ms)}, expect={TICK_BOUND_KEY: revision}
            )
            self._saved = bound_ms, written
            return WindowGranted(saved_ms, bound_ms)

        return await retry_conflicts(TICK_BOUND_KEY, attempt)

    async def _read(self) -> tuple[int, int]:
        """The stored bound and its revision; zeros for none."""
        entry = await self._store.get(TICK_BOUND_KEY)
        if entry is None:
            return 0, 0
        return decode_number(TICK_BOUND_KEY, entry.value), entry.revision
