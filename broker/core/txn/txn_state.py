"""The state table of a transaction."""

from collections.abc import Mapping
from enum import Enum

from broker.model.failure import StreamingCode


class TxnState(Enum):
    """The state of a transaction. ON_COMMIT and ON_ROLLBACK last until the end record is durable.

    Only staged transactions become PREPARED: then no timeout or exclusive message ends them.
    """

    IN_FLIGHT = "in flight"
    PREPARED = "prepared"
    ON_COMMIT = "on commit"
    ON_ROLLBACK = "on rollback"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"
    FAILED = "failed"


class TxnEvent(Enum):
    """What happens to a transaction."""

    BODY = "a body"
    PREPARE = "a prepare"
    COMMIT = "a commit"
    ROLLBACK = "a rollback"
    STORED = "its end became durable"
    EXPIRE = "its time ran out"
    EXCLUDE = "an exclusive message"


_GONE = StreamingCode.TRANSACTION_EXPIRED
_WRONG = StreamingCode.INVALID_TRANSACTION_STATE
_S, _E = TxnState, TxnEvent
_Follows = Mapping[TxnEvent, TxnState | StreamingCode | None]
_ENDED: dict[TxnEvent, TxnState | StreamingCode | None] = {
    _E.STORED: None,
    _E.EXPIRE: None,
    _E.EXCLUDE: None,
}
_OVER = _ENDED | {_E.BODY: _WRONG, _E.PREPARE: _WRONG}
_LOST = _ENDED | {_E.BODY: _GONE, _E.PREPARE: _GONE, _E.COMMIT: _GONE, _E.ROLLBACK: _GONE}

NEXT: Mapping[TxnState, _Follows] = {
    _S.IN_FLIGHT: {
        _E.BODY: _S.IN_FLIGHT,
        _E.PREPARE: _S.PREPARED,
        _E.COMMIT: _S.ON_COMMIT,
        _E.ROLLBACK: _S.ON_ROLLBACK,
        _E.STORED: None,
        _E.EXPIRE: _S.EXPIRED,
        _E.EXCLUDE: _S.FAILED,
    },
    _S.PREPARED: _ENDED
    | {
        _E.BODY: _WRONG,
        _E.PREPARE: _S.PREPARED,
        _E.COMMIT: _S.ON_COMMIT,
        _E.ROLLBACK: _S.ON_ROLLBACK,
    },
    _S.ON_COMMIT: _ENDED
    | {
        _E.BODY: _WRONG,
        _E.PREPARE: _WRONG,
        _E.COMMIT: _S.ON_COMMIT,
        _E.ROLLBACK: _WRONG,
        _E.STORED: _S.COMMITTED,
    },
    _S.ON_ROLLBACK: _ENDED
    | {
        _E.BODY: _WRONG,
        _E.PREPARE: _WRONG,
        _E.COMMIT: _WRONG,
        _E.ROLLBACK: _S.ON_ROLLBACK,
        _E.STORED: _S.ROLLED_BACK,
    },
    _S.COMMITTED: _OVER | {_E.COMMIT: _S.COMMITTED, _E.ROLLBACK: _WRONG},
    _S.ROLLED_BACK: _OVER | {_E.COMMIT: _WRONG, _E.ROLLBACK: _S.ROLLED_BACK},
    _S.EXPIRED: _LOST,
    _S.FAILED: _LOST,
}
"""The result of each event: the next state, the code that refuses it, or None for no change.

A repeated commit or rollback gets the answer of the first one, whose response may be lost.
"""


def after(state: TxnState, event: TxnEvent) -> TxnState:
    """The next state; the same one if the event changes nothing. Not for refused events."""
    follows = NEXT[state][event]
    assert not isinstance(follows, StreamingCode), (state, event)
    return state if follows is None else follows
