"""Refusals as status trailers, against the generated google.rpc.Status."""

import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.fields import field
from schemas.encoding.varint import Malformed
from schemas.generated.google.protobuf import Any
from schemas.generated.google.rpc import Status
from schemas.generated.milvus.proto.streaming import StreamingCode
from schemas.status import (
    CAUSE_CHARACTERS_MAX,
    StreamingError,
    grpc_code,
    read_status_details,
    status_details,
)

errors = st.builds(
    StreamingError, st.sampled_from([int(code) for code in StreamingCode]), st.text()
)


@given(errors)
def test_an_error_comes_back_and_the_codes_agree(error: StreamingError) -> None:
    data = status_details(error)
    assert read_status_details(data) == error
    assert Status.parse(data).code == grpc_code(error.code)


@given(errors)
def test_other_details_are_passed_over(error: StreamingError) -> None:
    other = Any(type_url="type.googleapis.com/google.rpc.DebugInfo", value=b"\x0a\x01x")
    data = field(0x1A, bytes(other)) + status_details(error)
    assert read_status_details(data) == error


@given(errors, st.text(st.characters(codec="utf-8")))
def test_a_leader_comes_with_the_error_that_peers_of_milvus_find(
    error: StreamingError, leader: str
) -> None:
    named = StreamingError(error.code, error.cause, leader)
    data = status_details(named)
    assert read_status_details(data) == named
    first, second = Status.parse(data).details
    assert bytes(first) == bytes(Status.parse(status_details(error)).details[0])
    assert second.type_url == "type.googleapis.com/tidemark.v1.NotLeading"


@given(errors, st.integers(1, 10**9))
def test_the_time_to_wait_is_a_retry_info_as_grpcs_own_library_reads_it(
    error: StreamingError, retry_ms: int
) -> None:
    timed = StreamingError(error.code, error.cause, retry_ms=retry_ms)
    data = status_details(timed)
    assert read_status_details(data) == timed
    packed = status_pb2.Status.FromString(data).details[1]
    info = error_details_pb2.RetryInfo()
    assert packed.Unpack(info)
    assert info.retry_delay.ToMilliseconds() == retry_ms


@pytest.mark.parametrize(
    ("seconds", "nanos", "retry_ms"),
    [(0, 0, 0), (0, 1, 1), (0, 1_000_001, 2), (-5, 0, 0), (1 << 62, 0, 366 * 24 * 3_600_000)],
)
def test_times_of_others_are_rounded_up_and_bounded(
    seconds: int, nanos: int, retry_ms: int
) -> None:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.seconds, info.retry_delay.nanos = seconds, nanos
    status = status_pb2.Status.FromString(status_details(StreamingError(16, "later")))
    status.details.add().Pack(info)
    found = read_status_details(status.SerializeToString())
    assert found == StreamingError(16, "later", retry_ms=retry_ms)


def test_a_long_cause_is_cut_so_that_the_trailers_stay_small() -> None:
    error = read_status_details(status_details(StreamingError(1, "ü" * 100_000)))
    assert error is not None
    assert error.cause == "ü" * CAUSE_CHARACTERS_MAX


def test_a_cause_that_is_no_unicode_is_sent_all_the_same() -> None:
    assert read_status_details(status_details(StreamingError(1, "\ud800"))) == StreamingError(
        1, "?"
    )


def test_details_without_a_streaming_error_are_none() -> None:
    assert read_status_details(b"") is None
    assert read_status_details(bytes(Status(code=13, message="x"))) is None


def test_damaged_details_are_malformed() -> None:
    with pytest.raises(Malformed):
        read_status_details(status_details(StreamingError(1, "x"))[:-1])


@pytest.mark.parametrize(
    ("grpc", "codes"),
    [
        (0, [0]),
        (9, [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15]),
        (13, [7]),
        (3, [8]),
        (8, [16]),
        (7, [1007]),
        (16, [1016]),
        (2, [999, 17]),
    ],
)
def test_grpc_codes_follow_the_newest_table(grpc: int, codes: list[int]) -> None:
    assert {grpc_code(code) for code in codes} == {grpc}
