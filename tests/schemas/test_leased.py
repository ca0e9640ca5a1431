"""Answers with leased messages against the generated code, and against damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.batches import ReadBatch, read_batch, read_response, scan_read_response
from schemas.encoding.frames import FrameSplitter
from schemas.encoding.varint import Malformed
from schemas.generated.tidemark import v1
from schemas.leased import JoinAnswer, leased_response, scan_join_response

SIZES = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
NUMBERS = st.integers(0, 2**62)
BATCHES = st.lists(
    st.tuples(st.text(max_size=20), SIZES, NUMBERS, NUMBERS, st.binary(max_size=300)).map(
        lambda it: ReadBatch(it[0], it[1], message_id=it[2], tick=it[3], end=7, body=it[4])
    ),
    max_size=4,
)
HEADS = st.builds(
    v1.LeasedMessages,
    lease=st.integers(1, 2**40),
    span=st.builds(v1.TickSpan, after=st.integers(0, 2**63), upto=st.integers(0, 2**63)),
    times=st.integers(0, 100),
    more=st.booleans(),
)


def unframed(framed: bytes) -> bytes:
    (message,) = FrameSplitter(1 << 20).feed(framed)
    return message


@given(HEADS, BATCHES)
def test_what_is_built_is_read_by_the_generated_code_and_by_the_scanner(
    head: v1.LeasedMessages, batches: list[ReadBatch]
) -> None:
    reads = [read_response(read_batch(it)) for it in batches]
    message = unframed(leased_response(bytes(head), reads))
    generated = v1.JoinGroupResponse.parse(message).leased
    assert generated is not None
    assert [scan_read_response(it).batch for it in generated.reads] == batches
    assert (generated.lease, generated.span, generated.more) == (head.lease, head.span, head.more)
    scanned = scan_join_response(message)
    assert (scanned.rest, scanned.batches) == (b"", batches)
    assert scanned.leased is not None
    assert v1.LeasedMessages.parse(scanned.leased) == head


def test_what_is_no_lease_is_left_to_the_generated_code() -> None:
    answer = v1.JoinGroupResponse(
        joined=v1.GroupJoined(member=3, lease_ms=100), settled=[v1.Settled(number=1, cause="x")]
    )
    scanned = scan_join_response(bytes(answer))
    assert (scanned.leased, scanned.batches) == (None, [])
    assert v1.JoinGroupResponse.parse(scanned.rest) == answer
    assert scan_join_response(b"") == JoinAnswer(b"", None, [])


def test_an_answer_that_is_cut_is_malformed() -> None:
    read = read_response(read_batch(ReadBatch(sizes=(3,), end=1, body=b"abc")))
    message = unframed(leased_response(bytes(v1.LeasedMessages(lease=1)), [read]))
    for length in range(1, len(message)):
        with pytest.raises(Malformed):
            scan_join_response(message[:length])
