"""How long a transaction lives, against the same thing said in milliseconds."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.txn.txn_lease import PREPARED_LOOK_MS, is_over, lease_left_ms
from broker.core.txn.txn_state import TxnState
from broker.core.txn.txn_view import TxnView
from broker.model.ids import TimeTick, TxnId
from broker.model.txn import TxnContext

MS = 1 << 18
BEGAN = 1_000 * MS


@given(
    st.integers(-1000, 500),
    st.integers(0, 800),
    st.integers(0, 2000),
    st.integers(1, 1000),
)
def test_a_transaction_is_over_after_its_keepalive_or_its_age_whichever_is_first(
    keepalive_ms: int, last_ms: int, now_ms: int, age_ms_max: int
) -> None:
    context = TxnContext(TxnId(BEGAN), keepalive_ms)
    last, now = TimeTick(BEGAN + last_ms * MS), TimeTick(BEGAN + now_ms * MS)
    ends = [age_ms_max] if keepalive_ms < 0 else [age_ms_max, last_ms + keepalive_ms]
    left_ms = max(0, min(ends) - now_ms)
    view = TxnView(context, "v", last, 0, 0, TxnState.IN_FLIGHT)
    assert lease_left_ms(view, now, age_ms_max) == left_ms
    assert is_over(context, last, now, age_ms_max) is (left_ms == 0)


def test_one_that_is_prepared_has_no_end() -> None:
    context = TxnContext(TxnId(BEGAN), 10)
    view = TxnView(context, "v", TimeTick(BEGAN), 0, 0, TxnState.PREPARED)
    assert lease_left_ms(view, TimeTick(BEGAN + 10_000 * MS), 1) == PREPARED_LOOK_MS


def test_a_part_of_a_millisecond_that_is_left_counts_as_one() -> None:
    context = TxnContext(TxnId(BEGAN), 10)
    view = TxnView(context, "v", TimeTick(BEGAN), 0, 0, TxnState.IN_FLIGHT)
    assert lease_left_ms(view, TimeTick(BEGAN + 10 * MS - 1), 1000) == 1
    assert not is_over(context, TimeTick(BEGAN), TimeTick(BEGAN + 10 * MS - 1), 1000)
