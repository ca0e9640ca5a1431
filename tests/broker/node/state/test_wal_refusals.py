"""The code and the details of the refusal for each error of a log."""

import pytest

from broker.model.failure import Refused, StreamingCode
from broker.node.state.wal_refusals import refusal_of, refused
from broker.ports.wal import (
    Corrupt,
    Fenced,
    LogClosed,
    OutOfRange,
    UnknownFormat,
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
