"""What a watcher is shown of transactions."""

from broker.core.txn.txn_state import TxnState
from broker.core.txn.txn_view import StagedUsage, TxnView, staged_usage
from broker.model.ids import TimeTick, TxnId
from broker.model.stage import StageName
from broker.model.txn import TxnContext


def test_what_is_staged_is_counted_apart_from_other_transactions() -> None:
    stage = StageName("etl", 7, 0, 0)
    views = [
        TxnView(TxnContext(TxnId(at), 10), "v", TimeTick(at), 1, 100, TxnState.IN_FLIGHT, of)
        for at, of in ((5, None), (7, stage), (6, stage), (8, None))
    ]
    assert staged_usage(views) == StagedUsage(2, 200, TimeTick(6))
    assert staged_usage(views[:1]) == StagedUsage(0, 0, TimeTick(0))
