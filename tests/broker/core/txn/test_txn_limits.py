"""How long a transaction may be open depends on who ends it."""

from broker.core.txn.txn_limits import TxnLimits
from broker.model.stage import StageName


def test_what_is_staged_may_be_older_than_what_its_own_client_ends() -> None:
    limits = TxnLimits(age_ms_max=1, stage_age_ms_max=2)
    assert (limits.age_of(None), limits.age_of(StageName("a", 0, 0, 0))) == (1, 2)
