"""Map refusals and errors to what a gRPC caller sees.

The message of a gRPC status stays empty: clients read the StreamingError in
`grpc-status-details-bin`, and grpc-go drops it unless both codes agree. Who is over a limit of a
rate gets the time to wait as a `google.rpc.RetryInfo` beside it, and in the trailer by which gRPC's
libraries retry themselves.
"""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from actors import ActorError, AskTimeout, MailboxFull
from broker.model.failure import NotLeading, Refusal, Refused, StreamingCode, Throttled
from broker.transport import CutShort, Stalled
from schemas.encoding.oversize import FrameTooLarge
from schemas.status import StreamingError, grpc_code, status_details
from schemas.wire import Malformed

PUSHBACK: Final = "grpc-retry-pushback-ms"
"""By it a library with a retry policy waits as long as the server says (gRPC's proposal A6)."""
_PUSHBACK_MS_MAX: Final = 2**31 - 1


def grpc_trailers(refusal: Refusal) -> Mapping[str, str]:
    """What the trailers say beside the status that `grpc_error` gives."""
    if not isinstance(refusal, Throttled):
        return {}
    return {PUSHBACK: str(min(refusal.retry_ms, _PUSHBACK_MS_MAX))}


def grpc_error(refusal: Refusal) -> GRPCError:
    """The exception that ends a call with this refusal when its handler raises it."""
    leader = refusal.leader if isinstance(refusal, NotLeading) else None
    retry_ms = refusal.retry_ms if isinstance(refusal, Throttled) else 0
    details = status_details(StreamingError(int(refusal.code), refusal.cause, leader, retry_ms))
    return GRPCError(Status(grpc_code(refusal.code)), "", details)


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal an error stands for; None for a defect of the server."""
    match unwrapped(error):
        case Refused(refusal=refusal):
            return refusal
        case FrameTooLarge():
            return Refusal(StreamingCode.UNRECOVERABLE, f"{error}; send smaller messages")
        case Malformed() | CutShort():
            return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
        case Stalled():
            return timed_out(str(error)).refusal
        # Subclasses of ActorError, so before it: the actor runs, and may answer the next time.
        case AskTimeout() | MailboxFull():
            return Refusal(StreamingCode.INNER, f"{error}; try again later")
        # No incarnation answered through all restarts. ON_SHUTDOWN makes clients locate it again.
        case ActorError():
            return Refusal(StreamingCode.ON_SHUTDOWN, f"{error}; try again")
        case _:
            return None


def timed_out(what: str) -> Refused:
    """The refusal INNER of something that did not arrive in time; a retry may succeed.

    The cause may be the peer, the network, or this process, which may have been stopped a while.
    """
    return Refused(StreamingCode.INNER, f"{what}; try again")


def unwrapped(error: BaseException) -> BaseException:
    """The one error inside a task group's group of one; else the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
