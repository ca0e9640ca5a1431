"""Hands out time ticks from memory, below a durable bound that is extended ahead of need.

Waits for the store only when the window is used up: TickWindow writes, and tells the outcome.

Next: broker/core/time/tso.py
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from actors import Actor, ActorDied, ActorError, Context, Envelope, Ref, StaleTerm
from broker.coordinator.time.messages import (
    ExtendWindow,
    LookAhead,
    OpenWindow,
    OracleMessage,
    Reserve,
    WindowGranted,
    WindowMessage,
    WindowRefused,
)
from broker.core.time import tso
from broker.model.failure import Refused, StreamingCode
from broker.ports.ticks import RESERVE_COUNT_MAX, TickRange

LOOK_AHEAD_S = 0.4
"""Several checks in the half window in which the bound falls due."""

WAITING_MAX = 1024
"""Requests that may wait for a window at once; each pchannel sends one at a time."""

START_DEADLINE_S = 10.0
EXTEND_DEADLINE_S = 60.0
"""Longer than a store takes that answers at all; then the window is asked again."""
RESERVE_DEADLINE_S = 5.0


class Oracle(Actor[OracleMessage]):
    """Hands out ticks, each larger than all before it; see TickSource.

    A new incarnation starts above the durable bound, so above every tick ever handed out.
    """

    def __init__(self, window_path: str) -> None:
        self._window_path = window_path
        self._waiting: list[tuple[Reserve, Envelope[OracleMessage]]] = []
        self._extending = False
        self._extensions = 0

    async def started(self, context: Context[OracleMessage]) -> None:
        self._context = context
        self._window: Ref[WindowMessage] = context.tree.find(self._window_path)
        grant = await self._window.ask(OpenWindow(), deadline_s=START_DEADLINE_S)
        self._hybrid = tso.started(grant.saved_ms, grant.bound_ms)
        self._time = tso.SmearedTime(self._hybrid.physical_ms, context.clock.monotonic_s())
        context.on_beat(LOOK_AHEAD_S, LookAhead())

    async def receive(self, batch: Sequence[Envelope[OracleMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case Reserve(count) if not 1 <= count <= RESERVE_COUNT_MAX:
                    cause = f"the number of ticks must be 1 to {RESERVE_COUNT_MAX}, not {count}"
                    envelope.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
                case Reserve() as request:
                    self._reserve(request, envelope)
                case LookAhead():
                    due_ms = tso.bound_due(self._hybrid, self._now_ms())
                    if due_ms is not None:
                        self._extend(due_ms)
                case WindowGranted(saved_ms, bound_ms):
                    self._take(tso.granted(self._hybrid, saved_ms, bound_ms))
                    self._extending = False
                    self._extensions += 1
                    self._serve_waiting()
                case WindowRefused(cause):
                    self._extending = False
                    self._refuse_waiting(cause)
                case message:
                    assert_never(message)

    def statistics(self) -> Mapping[str, int | float | str]:
        wall_ms = self._context.clock.wall_ms()
        return {
            "bound_ms": self._hybrid.bound_ms,
            "extensions": self._extensions,
            # Of the clock. What an idle one handed out last may be old, which says nothing.
            "ahead_ms": max(0, self._hybrid.physical_ms - wall_ms),
        }

    def _reserve(self, request: Reserve, envelope: Envelope[OracleMessage]) -> None:
        count, now_ms = request.count, self._now_ms()
        limit_ms = request.ahead_ms_max
        outcome: tso.ReservedTicks | tso.SaveFirst | tso.TooFarAhead
        if limit_ms is None:
            outcome = tso.reserve(self._hybrid, count, now_ms)
        else:
            outcome = tso.reserve_near(self._hybrid, count, now_ms, limit_ms)
        match outcome:
            case tso.ReservedTicks(after, first):
                self._hybrid = after
                envelope.reply(TickRange(first, count))
            case tso.TooFarAhead(ahead_ms):
                cause = f"the next one is {ahead_ms} ms ahead of the coordinator's time"
                envelope.fail(_no_ticks(f"{cause}, the most is {limit_ms} ms; try again soon"))
            case tso.SaveFirst(bound_ms):
                self._extend(bound_ms)
                if len(self._waiting) < WAITING_MAX:
                    self._waiting.append((request, envelope))
                else:
                    envelope.fail(_no_ticks("too many requests wait for the bound to be saved"))
            case _:
                assert_never(outcome)

    def _now_ms(self) -> int:
        clock = self._context.clock
        self._time = self._time.at(clock.wall_ms(), clock.monotonic_s())
        return int(self._time.ms)

    def _take(self, granted: tso.HybridClock) -> None:
        if granted.physical_ms > self._hybrid.physical_ms:
            # Somebody else had the window: this one begins above it, and so does time.
            self._time = self._time.at(granted.physical_ms, self._context.clock.monotonic_s())
        self._hybrid = granted

    def _extend(self, bound_ms: int) -> None:
        if not self._extending:
            self._extending = True
            extend = ExtendWindow(self._hybrid.bound_ms, bound_ms)
            self._window.ask_then(extend, self._extended, deadline_s=EXTEND_DEADLINE_S)

    def _extended(self, outcome: WindowGranted | Exception) -> None:
        match outcome:
            case WindowGranted():
                news: OracleMessage = outcome
            case ActorDied():
                return  # this actor restarts with the window; its callers ask the next incarnation
            case Refused(refusal=refusal):
                news = WindowRefused(refusal.cause)
            case error:
                news = WindowRefused(str(error))
        # By a timer, for which even a full mailbox has room: without the outcome the flag would
        # stay set, and nobody would get ticks any more.
        self._context.after(0.0, news)

    def _serve_waiting(self) -> None:
        """In order of arrival; a request that does not fit waits for the next window."""
        # Emptied first: `_reserve` puts requests that do not fit back into it.
        waiting, self._waiting = self._waiting, []
        for request, envelope in waiting:
            self._reserve(request, envelope)

    def _refuse_waiting(self, cause: str) -> None:
        waiting, self._waiting = self._waiting, []
        for _, envelope in waiting:
            envelope.fail(_no_ticks(cause))


class OracleTicks:
    """TickSource (`broker/ports/ticks.py`) that asks the current incarnation of the oracle."""

    def __init__(self, find: Callable[[str], Ref[Any]], oracle_path: str) -> None:
        self._find = find
        self._path = oracle_path
        self._oracle: Ref[OracleMessage] | None = None

    async def reserve(self, count: int) -> TickRange:
        """See TickSource."""
        try:
            return await self._ask(count)
        except (StaleTerm, ActorDied):
            # Ask the next incarnation. Ticks of the lost answer are never used: a harmless gap.
            self._oracle = None
        except ActorError as error:
            raise self._refused(error) from error
        try:
            return await self._ask(count)
        except ActorError as error:
            raise self._refused(error) from error

    async def _ask(self, count: int) -> TickRange:
        if self._oracle is None:  # kept until a call fails, because it does not follow a restart
            self._oracle = self._find(self._path)
        return await self._oracle.ask(Reserve(count), deadline_s=RESERVE_DEADLINE_S)

    def _refused(self, error: ActorError) -> Refused:
        self._oracle = None
        return _no_ticks(str(error))


def _no_ticks(cause: str) -> Refused:
    return Refused(StreamingCode.INNER, f"no time ticks available: {cause}")
