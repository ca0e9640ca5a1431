"""Send two-phase commit commands for staged transactions to the nodes that own them."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from broker.codec.owner_appends import Owners, append_at_owners
from broker.codec.stored_stages import (
    abort_message,
    abort_unprepared_message,
    batch_mark_of,
    commit_message,
    prepare_message,
)
from broker.model.failure import Refusal
from broker.model.message import Appended, NewMessage
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand


class NodeStagedTxns:
    """See StagedTxns. `owners` is called for each request."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def send(
        self, command: TxnCommand, commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """See StagedTxns."""
        # Readers count commits by the mark to see a whole batch; other commands need none.
        mark = batch_mark_of(commit) if command is TxnCommand.COMMIT else ""
        messages = [_message(command, commit, txn, mark) for txn in txns]
        return dict(zip(txns, await append_at_owners(self._owners, messages), strict=True))


def _message(command: TxnCommand, commit: BatchCommit, txn: StagedTxn, mark: str) -> NewMessage:
    match command:
        case TxnCommand.PREPARE:
            return prepare_message(commit, txn)
        case TxnCommand.COMMIT:
            return commit_message(commit, txn, mark)
        case TxnCommand.ABORT:
            return abort_message(commit, txn)
        case TxnCommand.ABORT_UNPREPARED:
            return abort_unprepared_message(txn)
        case _:
            assert_never(command)
