"""Changes of definitions, sent again under one request id until they are answered."""

from dataclasses import dataclass
from typing import Final, TypedDict, TypeVar
from uuid import uuid4

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    BadTarget,
    ChannelNotExist,
    ClosedClient,
    DeadlineExceeded,
    OutcomeUnknown,
    UnknownDefinition,
)
from broker.client.net.retry_call import retry_call
from broker.model.ids import TimeTick
from broker.transport import WireMessage
from schemas.generated.tidemark import v1

CHANGE_S: Final = 30.0
W = TypeVar("W", bound=WireMessage)


class ChangeOptions(TypedDict, total=False):
    """Of every change; each may be left out.

    `database`: "" is the default one. `timestamp`: from `alloc_timestamp`; the change is refused
    when a newer one of the same name was planned before. `request_id`: a second call with the same
    id, `source_id` (the caller) and content is the same change and gets the first answer, also
    after a restart of the server; with other content it is refused. Without one the client makes up
    an id, so that its own retries are one change. `deadline_s`: 30 s.
    """

    database: str
    timestamp: int
    request_id: str
    source_id: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Defined:
    """A change that took effect. `id`: of what was created, 0 for a drop.

    `tick`: of the change on the control channel.
    """

    id: int
    tick: TimeTick


class ChangeCalls:
    """Starts changes of one server's meta table, and reads it."""

    def __init__(self, calls: ServiceCalls, *, deadline_s: float) -> None:
        self._calls = calls
        self._deadline_s = deadline_s

    def base(self, options: ChangeOptions) -> v1.MsgBase:
        """The options as they are sent. Raises BadTarget for numbers that do not fit."""
        timestamp, source = options.get("timestamp", 0), options.get("source_id", 0)
        if not 0 <= timestamp < 1 << 64:
            raise BadTarget(f"{timestamp} is not a timestamp (64 bits, unsigned)")
        id = options.get("request_id") or f"client-{uuid4().hex}"
        return v1.MsgBase(request_id=id, timestamp=timestamp, source_id=number(source, "source ID"))

    async def start(
        self, method: str, request: WireMessage, answer: type[W], options: ChangeOptions
    ) -> W:
        """The answer to a change, whose request has the `base` of the same options.

        Errors that may pass are retried until the deadline. Raises UnknownDefinition, or
        OutcomeUnknown when the deadline passes or the client is closed meanwhile.
        """

        self._calls.check_usable()
        try:
            within_s = options.get("deadline_s", CHANGE_S)
            return await self._retried(method, request, answer, within_s)
        except (ClosedClient, DeadlineExceeded) as error:
            base: v1.MsgBase = getattr(request, "base")  # noqa: B009 - of every such request
            raise OutcomeUnknown(
                f"no answer: {method} may still take effect; call again"
                f" with request_id={base.request_id!r} ({error})"
            ) from error

    async def change(self, method: str, request: WireMessage, options: ChangeOptions) -> Defined:
        """`start` a change that has no result of its own."""
        done = await self.start(method, request, v1.DdlResponse, options)
        return Defined(done.id, TimeTick(done.time_tick))

    async def read(self, method: str, request: WireMessage, answer: type[W]) -> W:
        """The answer to a read. Errors that may pass are retried; raises UnknownDefinition."""
        return await self._retried(method, request, answer, self._deadline_s)

    async def _retried(
        self, method: str, request: WireMessage, answer: type[W], within_s: float
    ) -> W:
        async def attempt(left_s: float) -> W:
            try:
                return await self._calls.ask(method, request, answer, deadline_s=left_s)
            except ChannelNotExist as error:
                raise UnknownDefinition(error.cause, error.code) from None

        return await retry_call(attempt, within_s)


def number(given: int, what: str, bits: int = 64) -> int:
    """The number, if it fits a signed field of the protocol. Raises BadTarget."""
    if not -(1 << bits - 1) <= given < 1 << bits - 1:
        raise BadTarget(f"{what} {given} does not fit {bits} bits, signed")
    return given
