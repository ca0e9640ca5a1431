"""Maps errors of a log to refusals with Milvus's codes.

UNRECOVERABLE for removed or damaged data: a retry cannot help, and it is the only code on which no
Milvus client retries at once; a resuming consumer backs off up to 10 s.
"""

from collections.abc import Sequence

from broker.model.failure import Refusal, Refused, StreamingCode
from broker.node.appender_messages import AppendOutcome
from broker.ports.wal import (
    Corrupt,
    Fenced,
    LogClosed,
    NotStored,
    OutOfRange,
    UnknownFormat,
    Unsuitable,
    WriterFailed,
)


def refusal_of(error: Exception) -> Refusal:
    """The refusal for an error of a log or of opening one."""
    match error:
        case Refused():
            return error.refusal
        case OutOfRange() if error.asked < error.first_id:
            return Refusal(StreamingCode.UNRECOVERABLE, f"removed by retention: {error}")
        case OutOfRange():
            return Refusal(StreamingCode.INVALID_ARGUMENT, f"not written yet: {error}")
        case Fenced():
            return Refusal(StreamingCode.CHANNEL_FENCED, str(error))
        case WriterFailed():
            return Refusal(StreamingCode.ON_SHUTDOWN, f"storage refused: {error}")
        case LogClosed():
            return Refusal(StreamingCode.ON_SHUTDOWN, f"{error}; locate the channel again")
        case Corrupt() | UnknownFormat() | Unsuitable():
            return Refusal(StreamingCode.UNRECOVERABLE, str(error))
        case _:
            return Refusal(StreamingCode.INNER, f"{type(error).__name__}: {error}")


def opening_refusal_of(error: Exception) -> Refusal:
    """The same for an error of opening a log, with what to do where no retry opens it."""
    refusal = refusal_of(error)
    match error:
        case Corrupt():
            to_do = "; set TIDEMARK_SKIP_DAMAGE=true to skip what cannot be read, and read the rest"
        case UnknownFormat():
            to_do = "; start the release that wrote it"
        case _:  # that of Unsuitable says so itself
            to_do = ""
    return Refusal(refusal.code, f"{refusal.cause}{to_do}")


def refused(error: Exception) -> Refused:
    """The same as an exception."""
    refusal = refusal_of(error)
    return Refused(refusal.code, refusal.cause)


def failed_outcomes(
    error: Fenced | WriterFailed, refusal: Refusal, outcomes: Sequence[AppendOutcome]
) -> list[AppendOutcome]:
    """The outcomes of a group that the log did not acknowledge, refused with `refusal`."""
    if isinstance(error, NotStored):
        # As certain as for later appends, and told with the same code.
        return [each if isinstance(each, Refusal) else refusal for each in outcomes]
    return unknown_outcomes(refusal, outcomes)


def unknown_outcomes(refusal: Refusal, outcomes: Sequence[AppendOutcome]) -> list[AppendOutcome]:
    """The outcomes of a group whose write failed with `refusal`: it may or may not be durable.

    The code differs from that of later appends, which are certainly not stored. Only a fenced
    writer has no second code: CHANNEL_FENCED is the last that is heard of it.
    """
    code = refusal.code
    if code is not StreamingCode.CHANNEL_FENCED:
        code = StreamingCode.UNKNOWN
    cause = f"{refusal.cause}; it may or may not be stored: retry once it is reopened"
    unknown = Refusal(code, cause)
    return [each if isinstance(each, Refusal) else unknown for each in outcomes]
