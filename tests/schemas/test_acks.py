"""Acknowledgements and their answers against the generated code, also where bytes are damaged."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.acks import (
    AckRequest,
    ack_request,
    acknowledged_number,
    acknowledged_response,
    scan_ack_request,
)
from schemas.encoding.frames import HEAD_BYTES, frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded, parsed

TICKS = st.integers(1, 2**64 - 1)
NUMBERS = st.integers(1, 2**63 - 1)
REQUESTS = st.builds(
    AckRequest,
    number=NUMBERS,
    lease=NUMBERS,
    spans=st.lists(st.tuples(TICKS, TICKS), max_size=3),
    credit_bytes=st.integers(0, 2**63 - 1),
)
OTHERS = st.builds(
    v1.JoinGroupRequest,
    open=st.none() | st.just(v1.GroupOpen(vchannel="by-dev_0", group="g")),
    credit_bytes=st.integers(-2, 2),
    settle=st.lists(
        st.builds(
            v1.SettleMessages,
            number=st.integers(-1, 2),
            lease=st.integers(-1, 2),
            spans=st.lists(
                st.builds(v1.TickSpan, after=st.integers(0, 1), upto=st.integers(0, 300)),
                max_size=2,
            ),
            how=st.sampled_from(v1.Settlement),
            delay_ms=st.integers(0, 1),
            txn_id=st.integers(0, 1),
            cause=st.sampled_from(["", "bad"]),
        ),
        max_size=2,
    ),
    give=st.none() | st.just(v1.GiveVChannel(identity="me")),
)


def as_message(ack: AckRequest) -> v1.JoinGroupRequest:
    spans = [v1.TickSpan(after=after, upto=upto) for after, upto in ack.spans]
    settle = v1.SettleMessages(number=ack.number, lease=ack.lease, spans=spans)
    return v1.JoinGroupRequest(credit_bytes=ack.credit_bytes, settle=[settle])


@given(REQUESTS)
def test_an_acknowledgement_is_written_as_the_generated_code_would_and_scanned(
    ack: AckRequest,
) -> None:
    framed = ack_request(ack.number, ack.lease, ack.spans, ack.credit_bytes)
    assert framed == frame(encoded(as_message(ack)))
    assert scan_ack_request(framed[HEAD_BYTES:]) == ack


def test_a_span_from_the_first_tick_on_is_written_and_left_to_the_generated_code() -> None:
    framed = ack_request(1, 2, [(0, 9)], 0)
    assert framed == frame(encoded(as_message(AckRequest(1, 2, [(0, 9)], 0))))
    assert scan_ack_request(framed[HEAD_BYTES:]) is None


@given(OTHERS)
def test_what_has_more_to_say_is_never_taken_for_less(request: v1.JoinGroupRequest) -> None:
    found = scan_ack_request(encoded(request))
    assert found is None or as_message(found) == request


@given(REQUESTS, st.data())
def test_of_damaged_bytes_the_scanner_reads_what_the_generated_code_reads(
    ack: AckRequest, data: st.DataObject
) -> None:
    whole = bytearray(encoded(as_message(ack)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found = scan_ack_request(damaged)
    if found is not None:
        assert as_message(found) == parsed(v1.JoinGroupRequest, damaged)


@given(NUMBERS)
def test_an_answer_is_written_as_the_generated_code_would_and_scanned(number: int) -> None:
    answer = v1.JoinGroupResponse(settled=[v1.Settled(number=number)])
    framed = acknowledged_response(number)
    assert framed == frame(encoded(answer))
    assert acknowledged_number(framed[HEAD_BYTES:]) == number


@pytest.mark.parametrize(
    "answer",
    [
        v1.JoinGroupResponse(),
        v1.JoinGroupResponse(joined=v1.GroupJoined(member=1)),
        v1.JoinGroupResponse(settled=[v1.Settled(number=1, code=3)]),
        v1.JoinGroupResponse(settled=[v1.Settled(number=1), v1.Settled(number=2)]),
        v1.JoinGroupResponse(settled=[v1.Settled(number=-1)]),
        v1.JoinGroupResponse(settled=[v1.Settled()]),
    ],
)
def test_any_other_answer_has_no_number(answer: v1.JoinGroupResponse) -> None:
    assert acknowledged_number(encoded(answer)) == 0


@given(st.binary(max_size=14))
@example(b"\x1a\x03\x08\x80\x80")
def test_bytes_with_a_number_are_that_answer_for_the_generated_code(data: bytes) -> None:
    number = acknowledged_number(data)
    if number:
        answer = v1.JoinGroupResponse(settled=[v1.Settled(number=number)])
        assert parsed(v1.JoinGroupResponse, data) == answer
