"""How much the transactions of one pchannel may hold, and for how long.

It owns the numbers and nothing else. Next: broker/core/txn/transactions.py
"""

from dataclasses import dataclass

from broker.model.stage import StageName

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TxnLimits:
    """How much the transactions of one pchannel may hold, and for how long.

    `open_bytes_max` also bounds what one reader holds of transactions that are not committed yet.
    """

    open_max: int = 1024
    txn_bytes_max: int = 32 * MIB
    open_bytes_max: int = 128 * MIB
    keepalive_default_ms: int = 10_000
    keepalive_max_ms: int = 600_000
    """Who asks for more is granted this."""
    age_ms_max: int = 600_000
    """Whatever its keepalive: an open transaction holds back what is confirmed, and truncation."""
    finished_max: int = 4096
    finished_ms: int = 60_000
    """How long, and how many, ended ones are remembered for a repeated commit."""
    stage_idle_ms: int = 600_000
    """The keepalive of every staged transaction: its commit comes when all parts are staged."""
    stage_age_ms_max: int = 3_600_000

    def age_of(self, stage: StageName | None) -> int:
        """How long one may be open that nobody has prepared."""
        return self.age_ms_max if stage is None else self.stage_age_ms_max
