"""Appends changes of a group to its vchannel's log, and applies them to the table when durable.

Those of a transaction are applied by its commit instead: see `ChannelGroups.end_txns`.

The table is changed by the answer itself, not by the actor that asked: so it has every change whose
answer arrived, whoever died meanwhile.
"""

from collections.abc import Callable

from actors import Clock
from broker.core.groups.group_changes import AckedInTxn, GroupChange, encode_change
from broker.model.failure import Refusal
from broker.model.message import GROUP_CHANGE, NewMessage
from broker.model.txn import TxnContext
from broker.node.append.intake import append, append_then
from broker.node.appender_messages import PlacedApart, RunOutcome
from broker.node.directory_messages import Located
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.state.oracle_view import OracleView

WRITE_S = 30.0


class GroupWriter:
    """For the groups of one open pchannel."""

    def __init__(self, opened: OpenChannel, node: NodeRuntime, clock: Clock) -> None:
        self._opened = opened
        oracle = OracleView(node.ticks, clock, node.limits.barrier_wait_s_max)
        self._located = Located(
            *(opened.channel, opened.appender, opened.backlog, opened, opened.closed, oracle),
            groups=opened.groups,
        )

    async def write(self, vchannel: str, change: GroupChange) -> Refusal | None:
        """None once the change is durable and in the table."""
        message = _message(vchannel, change)
        (outcome,) = await append(self._located, (message,), deadline_s=WRITE_S)
        return self._settled(vchannel, change, outcome)

    def write_then(
        self, vchannel: str, change: GroupChange, answered: Callable[[Refusal | None], None]
    ) -> None:
        """`write` without waiting: calls `answered` once, perhaps synchronously."""

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            answered(self._settled(vchannel, change, outcomes[0]))

        message = _message(vchannel, change)
        append_then(self._located, (message,), settle, deadline_s=WRITE_S)

    def _settled(self, vchannel: str, change: GroupChange, outcome: RunOutcome) -> Refusal | None:
        assert not isinstance(outcome, PlacedApart), "a change is no row"
        if isinstance(outcome, Refusal):
            return outcome
        if not isinstance(change, AckedInTxn):  # held already, since it was placed
            self._opened.groups.table.apply(vchannel, change, outcome.tick)
        return None


def _message(vchannel: str, change: GroupChange) -> NewMessage:
    body = encode_change(change)
    txn = TxnContext(change.txn, 0) if isinstance(change, AckedInTxn) else None
    return NewMessage(vchannel, GROUP_CHANGE, body, len(body), txn=txn)
