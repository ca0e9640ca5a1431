"""Refusals and errors as a gRPC caller sees them.

Owns the table of codes and the trailer. The message of a status stays empty: clients read the
StreamingError in `grpc-status-details-bin`, and grpc-go drops it unless both codes agree.
Next: broker/edge/gate.py
"""

from typing import Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from actors import ActorError, AskTimeout, MailboxFull
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.transport import Stalled
from schemas.frames import FrameTooLarge
from schemas.generated.google.protobuf import Any
from schemas.generated.google.rpc import Status as RpcStatus
from schemas.generated.milvus.proto.streaming import StreamingCode as WireCode
from schemas.generated.milvus.proto.streaming import StreamingError
from schemas.wire import Malformed

TYPE_URL: Final = "type.googleapis.com/milvus.proto.streaming.StreamingError"

_OTHER_STATUS: Final = {
    StreamingCode.OK: Status.OK,
    StreamingCode.INNER: Status.INTERNAL,
    StreamingCode.INVALID_ARGUMENT: Status.INVALID_ARGUMENT,
    StreamingCode.UNKNOWN: Status.UNKNOWN,
}


def grpc_status(code: StreamingCode) -> Status:
    """The gRPC code that carries a streaming code; FAILED_PRECONDITION for nearly all."""
    return _OTHER_STATUS.get(code, Status.FAILED_PRECONDITION)


def grpc_error(refusal: Refusal) -> GRPCError:
    """What to raise out of a handler, so that the call ends with this refusal."""
    status = grpc_status(refusal.code)
    error = StreamingError(code=WireCode(int(refusal.code)), cause=refusal.cause)
    detail = Any(type_url=TYPE_URL, value=bytes(error))
    return GRPCError(status, "", bytes(RpcStatus(code=status.value, details=[detail])))


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal that an error amounts to; None when it is nobody's fault but ours."""
    match sole(error):
        case Refused(refusal=refusal):
            return refusal
        case FrameTooLarge():
            return Refusal(StreamingCode.UNRECOVERABLE, f"{error}; send smaller messages")
        case Malformed() | Stalled():
            return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
        case AskTimeout() | MailboxFull():
            return Refusal(StreamingCode.INNER, f"{error}; try again later")
        case ActorError():
            return Refusal(StreamingCode.ON_SHUTDOWN, f"{error}; try again")
        case _:
            return None


def sole(error: BaseException) -> BaseException:
    """The one error inside a task group's group of one; else the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
