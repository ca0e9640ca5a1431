"""How the coordinator gives its word on staged transactions, wherever their owners are."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand


class StagedTxns(Protocol):
    """Every call ends by itself within about a minute, raises nothing, and may be cancelled."""

    async def send(
        self, command: TxnCommand, commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """Give each of these transactions, which are of `commit`, the same word, all at once.

        Appended: its log has the word, now or from an earlier time, durably. TRANSACTION_EXPIRED:
        its log does not know it (any more), or it expired. INVALID_TRANSACTION_STATE: it has ended
        otherwise. INVALID_ARGUMENT: it is not of that stage. Any other refusal: the word may have
        been heard or not; give it again.
        """
        ...


class NoStagedTxns:
    """Of a process that is no coordinator."""

    async def send(
        self, _command: TxnCommand, _commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """See StagedTxns."""
        nobody = Refusal(StreamingCode.CHANNEL_NOT_EXIST, "this process is no coordinator")
        return dict.fromkeys(txns, nobody)
