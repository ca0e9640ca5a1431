"""Refusals and errors as a gRPC caller sees them.

Owns which error amounts to which refusal. The message of a status stays empty: clients read the
StreamingError in `grpc-status-details-bin`, and grpc-go drops it unless both codes agree.
"""

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from actors import ActorError, AskTimeout, MailboxFull
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.transport import CutShort, Stalled
from schemas.encoding.frames import FrameTooLarge
from schemas.status import StreamingError, grpc_code, status_details
from schemas.wire import Malformed


def grpc_error(refusal: Refusal) -> GRPCError:
    """What to raise out of a handler, so that the call ends with this refusal."""
    details = status_details(StreamingError(int(refusal.code), refusal.cause))
    return GRPCError(Status(grpc_code(refusal.code)), "", details)


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal that an error amounts to; None when it is nobody's fault but ours."""
    match unwrapped(error):
        case Refused(refusal=refusal):
            return refusal
        case FrameTooLarge():
            return Refusal(StreamingCode.UNRECOVERABLE, f"{error}; send smaller messages")
        case Malformed() | CutShort():
            return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
        case Stalled():
            return timed_out(str(error)).refusal
        case AskTimeout() | MailboxFull():
            return Refusal(StreamingCode.INNER, f"{error}; try again later")
        case ActorError():
            return Refusal(StreamingCode.ON_SHUTDOWN, f"{error}; try again")
        case _:
            return None


def timed_out(what: str) -> Refused:
    """Something did not come in time. Nobody can say whose fault it is, the peer's, the network's,
    or that of this process, which may have been stopped for a while: the same again may go well."""
    return Refused(StreamingCode.INNER, f"{what}; try again")


def unwrapped(error: BaseException) -> BaseException:
    """The one error inside a task group's group of one; else the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
