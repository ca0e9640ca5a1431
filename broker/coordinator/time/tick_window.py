"""Stores the bound of the oracle, so that requests for ticks need not wait for the store."""

from collections.abc import Sequence
from typing import assert_never

from actors import Actor, ActorError, Context, Envelope
from broker.coordinator.records import TICK_BOUND_KEY, decode_number, encode_number
from broker.coordinator.time.messages import (
    ExtendWindow,
    OpenWindow,
    WindowGranted,
    WindowMessage,
    WindowRefused,
)
from broker.core.time import tso
from broker.model.failure import Refused, StreamingCode
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore


class TickWindow(Actor[WindowMessage]):
    """Grants windows; no two holders over the same store ever share a millisecond."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def started(self, context: Context[WindowMessage]) -> None:
        self._clock = context.clock

    async def receive(self, batch: Sequence[Envelope[WindowMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case OpenWindow():
                    try:
                        envelope.reply(await self._grant(held_ms=-1, wanted_ms=0))
                    except MetaError as error:
                        envelope.fail(Refused(StreamingCode.INNER, str(error)))
                case ExtendWindow() as request:
                    await self._extend(request)
                case message:
                    assert_never(message)

    async def _extend(self, request: ExtendWindow) -> None:
        outcome: WindowGranted | WindowRefused
        try:
            outcome = await self._grant(request.held_ms, request.bound_ms)
        except MetaError as error:
            outcome = WindowRefused(str(error))
        try:
            request.holder.tell(outcome)
        except ActorError:
            pass  # the oracle restarted; it opens a new window above this one

    async def _grant(self, held_ms: int, wanted_ms: int) -> WindowGranted:
        """Extend the bound to `wanted_ms`, or open a new window when the holder lost its own."""

        async def attempt() -> WindowGranted:
            entry = await self._store.get(TICK_BOUND_KEY)
            saved_ms = decode_number(TICK_BOUND_KEY, entry.value) if entry else 0
            revision = entry.revision if entry else 0
            bound_ms = wanted_ms
            if saved_ms != held_ms:
                bound_ms = max(wanted_ms, tso.first_bound(saved_ms, self._clock.wall_ms()))
            # The window is handed out only after its bound is durable: a restarted oracle starts
            # above the stored bound, so it cannot repeat a tick of this window.
            await self._store.write(
                {TICK_BOUND_KEY: encode_number(bound_ms)}, expect={TICK_BOUND_KEY: revision}
            )
            return WindowGranted(saved_ms, bound_ms)

        return await retry_conflicts(TICK_BOUND_KEY, attempt)
