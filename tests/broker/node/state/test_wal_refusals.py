"""The code and the details of the refusal for each error of a log."""

import pytest

from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.message import Appended
from broker.node.state.wal_refusals import failed_outcomes, refusal_of, refused
from broker.ports.wal import (
    Corrupt,
    Fenced,
    LogClosed,
    NotStored,
    OutOfRange,
    UnknownFormat,
    Unsuitable,
    WalError,
    WriterFailed,
)


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (OutOfRange("p", 3, 10, 20), StreamingCode.UNRECOVERABLE, "[10, 20)"),
        (OutOfRange("p", 30, 10, 20), StreamingCode.INVALID_ARGUMENT, "[10, 20)"),
        (Fenced("p", 3, 4), StreamingCode.CHANNEL_FENCED, "term 4"),
        (WriterFailed("no space"), StreamingCode.ON_SHUTDOWN, "no space"),
        (NotStored("too large"), StreamingCode.ON_SHUTDOWN, "too large"),
        (Unsuitable("two partitions"), StreamingCode.UNRECOVERABLE, "two partitions"),
        (LogClosed("p"), StreamingCode.ON_SHUTDOWN, "locate"),
        (
            Corrupt("seg-1", 77, "checksum"),
            StreamingCode.UNRECOVERABLE,
            "seg-1: damaged at byte 77",
        ),
        (UnknownFormat("seg-1", 9, 1), StreamingCode.UNRECOVERABLE, "version 9"),
        (WalError("odd"), StreamingCode.INNER, "WalError: odd"),
        (Refused(StreamingCode.IGNORED_OPERATION, "old"), StreamingCode.IGNORED_OPERATION, "old"),
    ],
)
def test_an_error_keeps_its_meaning_and_its_details(
    error: Exception, code: StreamingCode, part: str
) -> None:
    refusal = refusal_of(error)
    assert refusal.code is code
    assert part in refusal.cause
    assert refused(error).refusal == refusal


def test_only_what_the_storage_refused_as_a_whole_is_certainly_not_stored() -> None:
    own = Refusal(StreamingCode.INVALID_ARGUMENT, "refused before")
    landed = Appended(MessageId(1), TimeTick(1), MessageId(1))
    errors: dict[Fenced | WriterFailed, StreamingCode] = {
        NotStored("too large"): StreamingCode.ON_SHUTDOWN,
        WriterFailed("no answer"): StreamingCode.UNKNOWN,
        Fenced("p", 3, 4): StreamingCode.CHANNEL_FENCED,
    }
    for error, code in errors.items():
        first, second = failed_outcomes(error, refusal_of(error), [own, landed])
        assert first is own
        assert isinstance(second, Refusal)
        assert second.code is code
        assert ("may or may not be stored" in second.cause) == (not isinstance(error, NotStored))
