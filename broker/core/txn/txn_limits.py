"""How much the transactions of one pchannel may hold, and for how long."""

from dataclasses import dataclass

from broker.model.stage import StageName

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TxnLimits:
    """Limits of the transactions of one pchannel.

    `open_bytes_max` also bounds what one reader buffers of uncommitted transactions.
    """

    open_max: int = 1024
    """Open transactions of a pchannel; one more is refused for now."""
    txn_bytes_max: int = 32 * MIB
    """Bytes of one transaction: readers get it in one piece."""
    open_bytes_max: int = 128 * MIB
    """Bytes of all open transactions of a pchannel, and so of what each reader may hold."""
    keepalive_default_ms: int = 10_000
    """Keepalive of a transaction that asks for none."""
    keepalive_max_ms: int = 600_000
    """A longer requested keepalive is reduced to this."""
    age_ms_max: int = 600_000
    """Maximum age, whatever the keepalive: an open transaction delays truncation and recovery."""
    finished_max: int = 4096
    """Ended transactions that are remembered, so that a repeated commit gets the first answer."""
    finished_ms: int = 60_000
    """How long, and how many, ended transactions are remembered to answer a repeated commit."""
    stage_idle_ms: int = 600_000
    """The keepalive of every staged transaction: its commit comes when all parts are staged."""
    stage_age_ms_max: int = 3_600_000
    """Maximum age of a staged transaction that nobody has prepared."""

    def age_of(self, stage: StageName | None) -> int:
        """The maximum age of a transaction that is not prepared."""
        return self.age_ms_max if stage is None else self.stage_age_ms_max
