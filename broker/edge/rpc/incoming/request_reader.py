"""Requests to values: few fields at once, many in a thread, too many not at all.

Why a thread that pauses: the event loop would answer nobody while it decodes, and a thread that
only computes hands over the interpreter every 5 ms, several times for each answer.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
from anyio.to_thread import run_sync

from broker.edge.rpc.incoming.stream_turns import TurnGate
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.transport import WireMessage
from schemas.field_budget import FieldBudget, TooManyFields
from schemas.message_bytes import parsed

AT_ONCE: Final = 1024
"""Fields that take about half a millisecond."""
PAUSE_S: Final = 0.0002
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of requests of many fields that wait for the thread. A larger one waits alone."""
FIELDS_MAX: Final = 524_288
"""A commit of 23,600 staged transactions has 307,000, and is the largest there is."""

Q = TypeVar("Q", bound=WireMessage)


class RequestReader:
    """One for a server, with its gate. `pause`: called in the thread after each step."""

    def __init__(
        self, gate: TurnGate | None = None, pause: Callable[[], None] | None = None
    ) -> None:
        self.gate = gate or TurnGate()
        self._pause = pause or _let_others_run
        self._thread = anyio.CapacityLimiter(1)
        self._since_turn = 0
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Of requests of many fields that are in the thread, or wait for it."""
        return self._waiting_bytes

    async def read(self, data: bytes, request_type: type[Q]) -> Q:
        """The request. Raises Refused: INNER when too many large ones wait, INVALID_ARGUMENT."""
        budget = FieldBudget(AT_ONCE)
        try:
            return _decoded(data, request_type, budget)
        except _Many:
            pass
        finally:
            await self._give_turns(budget.taken)
        if self._waiting_bytes and self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
            raise Refused(
                StreamingCode.INNER,
                f"{self._waiting_bytes} bytes of requests of over {AT_ONCE} fields wait to be"
                " decoded; try again",
            )
        budget = FieldBudget(FIELDS_MAX, self._pause)
        self._waiting_bytes += len(data)
        try:
            return await run_sync(_decoded, data, request_type, budget, limiter=self._thread)
        finally:
            self._waiting_bytes -= len(data)

    async def _give_turns(self, fields: int) -> None:
        """Let others have theirs, when many small requests came together."""
        self._since_turn += fields
        if self._since_turn >= AT_ONCE:
            self._since_turn = 0
            await self.gate.wait()


class _Many(Refused):
    """It may be decoded in a thread."""


def _decoded(data: bytes, request_type: type[Q], budget: FieldBudget) -> Q:
    try:
        return parsed(request_type, data, budget)
    except TooManyFields as error:
        code = StreamingCode.INVALID_ARGUMENT
        raise _Many(code, f"{error}; divide the {request_type.__name__}") from None
    except Exception as error:
        raise invalid_argument(f"the bytes are not a {request_type.__name__}: {error}") from error


def _let_others_run() -> None:
    time.sleep(PAUSE_S)  # noqa: TID251 - in a thread, and only to hand over the interpreter
