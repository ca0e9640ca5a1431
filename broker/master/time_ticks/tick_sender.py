"""Sends each tick that passed to every channel, one message each.

A tick counts as sent when all channels have it. One that some channel refuses is repeated there
with pauses, so that a channel may get a tick twice; readers drop a tick that is not above the last.
"""

from collections.abc import Mapping, Sequence

from actors import Actor, ActorError, Backoff, Context, Envelope, Ref
from broker.coordinator.records import encode_number
from broker.coordinator.retries import Retries
from broker.core.time.barrier import NO_TICK
from broker.master.time_ticks.messages import (
    CollectorMessage,
    NextTick,
    SenderMessage,
    SendTicks,
    TickDelayed,
    TickSent,
    TickToSend,
)
from broker.master.time_ticks.tick_records import floor_key
from broker.model.failure import Refusal
from broker.model.master.time_ticks import TickOrigin
from broker.ports.meta import MetaError, MetaStore
from broker.ports.tick_appends import TickAppends

LOOK_S = 1.0
"""A timer, in case a wake-up was lost."""
ASK_S = 5.0
RETRY_FIRST_S, RETRY_MAX_S = 0.05, 10.0
EARLY_S = 0.005
TURN_MAX = 32
"""Ticks that are sent before the mailbox is looked at again."""
CAUSES_MAX = 3
"""Channels that an error names."""


class TickSender(Actor[SenderMessage]):
    """The loop of the time tick producer, for one origin."""

    _context: Context[SenderMessage]

    def __init__(
        self, origin: TickOrigin, store: MetaStore, appends: TickAppends, collector_path: str
    ) -> None:
        self._origin = origin
        self._store = store
        self._appends = appends
        self._collector_path = collector_path
        self._tick = NO_TICK
        self._missing: frozenset[str] = frozenset()
        self._floor = NO_TICK
        self._retry_at_s = 0.0
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._retries = Retries(backoff, "time tick is not sent yet", origin=origin.name)

    async def started(self, context: Context[SenderMessage]) -> None:
        self._context = context
        context.on_beat(LOOK_S, SendTicks())

    async def receive(self, batch: Sequence[Envelope[SenderMessage]]) -> None:
        """Send what is due, however many wake-ups have come."""
        # A timer may ring a little early.
        if self._context.clock.monotonic_s() < self._retry_at_s - EARLY_S:
            return
        try:
            collector: Ref[CollectorMessage] = self._context.tree.find(self._collector_path)
            for _ in range(TURN_MAX):
                due = await collector.ask(NextTick(), deadline_s=ASK_S)
                if due is None or not await self._send(due, collector):
                    return
            self._context.self.tell(SendTicks())
        except (ActorError, MetaError) as error:
            self._pause(str(error))

    def statistics(self) -> Mapping[str, int | float | str]:
        found = {"tick": self._tick, "missing": len(self._missing)}
        failures = self._retries.failures
        return {**found, "failures": failures, "error": self._retries.error} if failures else found

    async def _send(self, due: TickToSend, collector: Ref[CollectorMessage]) -> bool:
        """Whether every channel has the tick now."""
        if due.tick < self._floor:
            # The collector restarted before the larger tick was recorded, and does not know it.
            collector.tell(TickSent(due.tick))
            return True
        if due.tick != self._tick:
            self._tick, self._missing = due.tick, frozenset(due.channels)
        # Without channels that were taken away meanwhile.
        channels = [it for it in due.channels if it in self._missing]
        try:
            await self._save_floor(due)
        except MetaError as error:
            collector.tell(TickDelayed(f"tick {due.tick} could not be recorded: {error}"))
            raise
        outcomes = await self._appends.append(due.tick, channels)
        refused = {
            channel: it for channel, it in zip(channels, outcomes, strict=True) if it is not None
        }
        self._missing = frozenset(refused)
        if refused:
            cause = _described(refused)
            self._pause(cause)
            collector.tell(TickDelayed(f"tick {due.tick}: {cause}"))
            return False
        self._retries.succeeded()
        collector.tell(TickSent(due.tick))
        return True

    async def _save_floor(self, due: TickToSend) -> None:
        """Record the tick before any channel has it: a later incarnation sends only larger ones."""
        if due.tick != self._floor:
            await self._store.write({floor_key(self._origin): encode_number(due.tick)})
            self._floor = due.tick

    def _pause(self, cause: str) -> None:
        self._retries.failed(cause)
        pause_s = self._retries.pause_s(self._context.random)
        self._retry_at_s = self._context.clock.monotonic_s() + pause_s
        self._context.after(pause_s, SendTicks())


def _described(refused: Mapping[str, Refusal]) -> str:
    shown = [f"{channel}: {it.cause}" for channel, it in list(refused.items())[:CAUSES_MAX]]
    more = len(refused) - CAUSES_MAX
    return "; ".join(shown) + (f"; and {more} more channels" if more > 0 else "")
