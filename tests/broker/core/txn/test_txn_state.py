"""The table of a transaction's states, exhaustively."""

import pytest

from broker.core.txn.txn_state import NEXT, TxnEvent, TxnState, after
from broker.model.failure import StreamingCode

EXPIRED, WRONG = StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE


def test_the_state_table_says_something_about_every_event_in_every_state() -> None:
    assert set(NEXT) == set(TxnState)
    for state, row in NEXT.items():
        assert set(row) == set(TxnEvent), state
    over = {TxnState.EXPIRED, TxnState.FAILED}
    for state in over:
        assert {row for row in NEXT[state].values() if row is not None} == {EXPIRED}
    for state in set(TxnState) - over - {TxnState.IN_FLIGHT}:
        assert NEXT[state][TxnEvent.BODY] is WRONG


@pytest.mark.parametrize("state", TxnState)
@pytest.mark.parametrize("event", TxnEvent)
def test_what_follows_is_what_the_table_says_and_a_refusal_leads_nowhere(
    state: TxnState, event: TxnEvent
) -> None:
    follows = NEXT[state][event]
    if isinstance(follows, StreamingCode):
        with pytest.raises(AssertionError):
            after(state, event)
    else:
        assert after(state, event) is (state if follows is None else follows)


def test_only_a_transaction_in_flight_takes_bodies_expires_or_fails() -> None:
    for event in (TxnEvent.EXPIRE, TxnEvent.EXCLUDE):
        changed = {state for state in TxnState if after(state, event) is not state}
        assert changed == {TxnState.IN_FLIGHT}
