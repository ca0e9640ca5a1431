"""The hand-written answers are those of the generated classes."""

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.allocations import allocated
from schemas.generated.tidemark import v1


@given(st.integers(1, (1 << 63) - 1), st.integers(1, 65_536))
@example(1, 1)
@example((1 << 63) - 1, 65_536)
def test_an_answer_has_the_bytes_of_the_generated_class(first: int, count: int) -> None:
    encoded = allocated(first, count)
    assert encoded == bytes(v1.AllocIdResponse(start_id=first, count=count))
    assert encoded == bytes(v1.AllocTimestampResponse(start_time=first, count=count))
