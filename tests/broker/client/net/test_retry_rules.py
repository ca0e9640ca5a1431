"""What the client makes of each code a server may answer."""

import pytest

from broker.client.errors import ServerRefusal, UnknownRefusal
from broker.client.net.retry_rules import RetryVerdict, append_verdict, ends_reader, is_wrong_node
from broker.client.refusal_kinds import refusal
from broker.model.failure import StreamingCode

REFUSALS = [code for code in StreamingCode if code is not StreamingCode.OK]


@pytest.mark.parametrize("code", REFUSALS)
def test_each_code_has_an_exception_of_its_own_with_the_servers_words(code: StreamingCode) -> None:
    error = refusal(code, "because")
    assert type(error) is not ServerRefusal
    assert (error.code, error.cause) == (code, "because")
    assert str(error) == f"because ({code.name})"
    assert len({type(refusal(it, "")) for it in REFUSALS}) == len(REFUSALS)


def test_a_code_of_the_future_counts_as_unknown() -> None:
    assert isinstance(refusal(4711, "?"), UnknownRefusal)
    assert refusal(4711, "?").retriable


@pytest.mark.parametrize("code", REFUSALS)
def test_the_caller_gets_the_errors_that_a_retry_would_not_fix(code: StreamingCode) -> None:
    """One exception: a stream of a wrong order is opened anew, the call itself is not to blame."""
    surfaces = append_verdict(code) is RetryVerdict.SURFACE
    replaced = {StreamingCode.INVALID_REQUEST_SEQ, StreamingCode.WAL_NAME_MISMATCH}
    assert surfaces == (not refusal(code, "").retriable and code not in replaced)


def test_a_wrong_node_is_reported_and_no_other_refusal_is() -> None:
    assert {code for code in REFUSALS if is_wrong_node(code)} == {
        code for code in REFUSALS if append_verdict(code) is RetryVerdict.REROUTE
    }


def test_a_reader_ends_only_when_the_same_request_would_be_refused_again() -> None:
    assert {code for code in REFUSALS if ends_reader(code)} == {
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.WAL_NAME_MISMATCH,
        StreamingCode.REPLICATE_VIOLATION,
        StreamingCode.PERMISSION_DENIED,
        StreamingCode.NOT_AUTHENTICATED,
    }
