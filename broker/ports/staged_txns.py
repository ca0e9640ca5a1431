"""How the coordinator commands staged transactions, whichever nodes own their channels."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand


class StagedTxns(Protocol):
    """Every call returns within about a minute, raises nothing, and may be cancelled."""

    async def send(
        self, command: TxnCommand, commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """Send one command to all these transactions of `commit` at once; what each answered.

        Appended: the command is durable in its log, now or since an earlier call.
        TRANSACTION_EXPIRED: its log does not know it (any more), or it expired.
        INVALID_TRANSACTION_STATE: it has ended otherwise. INVALID_ARGUMENT: it is not of that
        stage. After any other refusal the command may have taken effect or not; send it again.
        """
        ...


class NoStagedTxns:
    """For a process that is no coordinator."""

    async def send(
        self, _command: TxnCommand, _commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """See StagedTxns."""
        refusal = Refusal(StreamingCode.CHANNEL_NOT_EXIST, "this process is no coordinator")
        return dict.fromkeys(txns, refusal)
