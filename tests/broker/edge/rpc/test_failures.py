"""Every way a call can fail, as the status a client sees."""

import pytest
from grpclib.const import Status

from actors import ActorError, AskTimeout, MailboxFull, NoSuchActor
from broker.edge.rpc.failures import PUSHBACK, grpc_error, grpc_trailers, refusal_of
from broker.model.failure import CAUSE_BYTES_MAX, Refusal, Refused, StreamingCode, Throttled
from broker.transport import CutShort, Stalled
from schemas.encoding.oversize import FrameTooLarge
from schemas.wire import Malformed

Code = StreamingCode
STATUS_OF = {
    Code.INNER: Status.INTERNAL,
    Code.INVALID_ARGUMENT: Status.INVALID_ARGUMENT,
    Code.RATE_LIMIT_REJECTED: Status.RESOURCE_EXHAUSTED,
    Code.UNKNOWN: Status.UNKNOWN,
    Code.PERMISSION_DENIED: Status.PERMISSION_DENIED,
    Code.NOT_AUTHENTICATED: Status.UNAUTHENTICATED,
}


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_each_code_has_the_status_of_milvus_newest_table(code: StreamingCode) -> None:
    error = grpc_error(Refusal(code, "why"))
    assert error.status is STATUS_OF.get(code, Status.FAILED_PRECONDITION)
    assert error.message == "", "clients read the details"


@pytest.mark.parametrize(("retry_ms", "text"), [(1, "1"), (1234, "1234"), (2**40, "2147483647")])
def test_who_is_over_a_limit_is_told_when_to_retry_in_grpcs_words(retry_ms: int, text: str) -> None:
    throttled = Throttled(Code.RATE_LIMIT_REJECTED, "too many", retry_ms)
    assert grpc_trailers(throttled) == {PUSHBACK: text}


def test_a_library_chooses_the_time_after_other_refusals() -> None:
    assert grpc_trailers(Refusal(Code.RATE_LIMIT_REJECTED, "the disk is full")) == {}


def test_the_details_are_the_golden_bytes() -> None:
    error = grpc_error(Refusal(Code.CHANNEL_NOT_EXIST, "ch not exist"))
    assert error.details.hex() == (
        "08091a4d0a39747970652e676f6f676c65617069732e636f6d2f6d696c7675732e70726f746f2e"
        "73747265616d696e672e53747265616d696e674572726f7212100801120c6368206e6f74206578697374"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(Code.CHANNEL_FENCED, "x"), Code.CHANNEL_FENCED),
        (FrameTooLarge(10, 11), Code.UNRECOVERABLE),
        (Malformed("x", 0), Code.INVALID_ARGUMENT),
        (CutShort("x"), Code.INVALID_ARGUMENT),
        (Stalled("x"), Code.INNER),
        (AskTimeout("/a", 1.0), Code.INNER),
        (MailboxFull("/a", 1), Code.INNER),
        (NoSuchActor("/a"), Code.ON_SHUTDOWN),
        (ActorError("x"), Code.ON_SHUTDOWN),
    ],
)
def test_an_error_amounts_to_a_refusal_also_inside_a_task_group(
    error: Exception, code: StreamingCode
) -> None:
    for raised in (error, ExceptionGroup("tasks", [ExceptionGroup("more", [error])])):
        refusal = refusal_of(raised)
        assert refusal is not None
        assert refusal.code is code
        assert refusal.cause


def test_what_is_nobodys_fault_but_ours_is_no_refusal() -> None:
    assert refusal_of(KeyError("x")) is None
    two = [Refused(Code.INNER, "a"), Refused(Code.INNER, "b")]
    assert refusal_of(ExceptionGroup("two at once", two)) is None


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f40d", "\ud800"])
def test_a_cause_that_quotes_much_is_cut_to_what_a_header_may_hold(letter: str) -> None:
    whole = Refusal(StreamingCode.INVALID_ARGUMENT, letter * 1000)
    assert whole.cause == letter * 1000
    refused = Refused(StreamingCode.INVALID_ARGUMENT, letter * 1_000_000)
    cut = refused.refusal.cause
    assert cut.endswith("...")
    assert CAUSE_BYTES_MAX - 8 <= len(cut.encode()) <= CAUSE_BYTES_MAX
    assert len(str(refused)) < CAUSE_BYTES_MAX + 100
    details = grpc_error(refused.refusal).details
    assert isinstance(details, bytes)
    assert len(details) < CAUSE_BYTES_MAX + 200
