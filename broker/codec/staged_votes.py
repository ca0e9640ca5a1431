"""The coordinator's word on staged transactions, to the logs of the nodes that serve them.

Owns which message says what. Never decides what is said.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from broker.codec.owner_appends import Owners, append_at_owners
from broker.codec.stored_stages import give_up, make_visible, mark_of, prepare, roll_back
from broker.model.failure import Refusal
from broker.model.message import Appended, NewMessage
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand


class NodeStagedTxns:
    """See StagedTxns. `owners`: who serves each pchannel, asked each time."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def send(
        self, command: TxnCommand, commit: BatchCommit, txns: Sequence[StagedTxn], /
    ) -> Mapping[StagedTxn, Appended | Refusal]:
        """See StagedTxns."""
        mark = mark_of(commit) if command is TxnCommand.COMMIT else ""
        messages = [_message(command, commit, txn, mark) for txn in txns]
        return dict(zip(txns, await append_at_owners(self._owners, messages), strict=True))


def _message(command: TxnCommand, commit: BatchCommit, txn: StagedTxn, mark: str) -> NewMessage:
    match command:
        case TxnCommand.PREPARE:
            return prepare(commit, txn)
        case TxnCommand.COMMIT:
            return make_visible(commit, txn, mark)
        case TxnCommand.ABORT:
            return roll_back(commit, txn)
        case TxnCommand.ABORT_UNPREPARED:
            return give_up(txn)
        case _:
            assert_never(command)
