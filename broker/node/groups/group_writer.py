"""Appends changes of a group to its vchannel's log, and applies them to the table when durable.

Those of a transaction are applied by its commit instead: see `ChannelGroups.end_txns`.

The table is changed by the answer itself, not by the actor that asked: so it has every change whose
answer arrived, whoever died meanwhile.
"""

from collections.abc import Callable, Sequence

from actors import Clock
from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupChange,
    MessagesAcked,
    encode_change,
)
from broker.model.failure import Refusal
from broker.model.ids import MessageId, TimeTick
from broker.model.message import GROUP_CHANGE, RELEASED, NewMessage, NewRun
from broker.model.txn import TxnContext
from broker.node.append.intake import append, append_then
from broker.node.appender_messages import AppendOutcome, PlacedApart, RunOutcome
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
        written = await self.tick_of(vchannel, change)
        return written if isinstance(written, Refusal) else None

    async def tick_of(self, vchannel: str, change: GroupChange) -> TimeTick | Refusal:
        """Write the change; its tick once it is durable and in the table."""
        (outcome,) = await self.append(_message(vchannel, change))
        return self._settled(vchannel, change, outcome)

    async def release(self, vchannel: str, bodies: Sequence[bytes]) -> MessageId | Refusal:
        """Store copies of delayed messages that are due, in one record; the id of the first one."""
        sizes = tuple(map(len, bodies))
        run = NewRun(vchannel, RELEASED, b"", sum(sizes), bodies=tuple(bodies), sizes=sizes)
        return await self._placed(run)

    async def mark(self, vchannel: str, name: str) -> MessageId | Refusal:
        """Store a change that changes nothing: whatever was appended before lies before it."""
        return await self._placed(_message(vchannel, MessagesAcked(name, ())))

    async def append(self, *messages: NewMessage) -> tuple[AppendOutcome, ...]:
        """Append messages of any kind to the log of the groups, as members' programs do."""
        return await append(self._located, messages, deadline_s=WRITE_S)

    async def _placed(self, message: NewMessage) -> MessageId | Refusal:
        (outcome,) = await self.append(message)
        return outcome if isinstance(outcome, Refusal) else outcome.id

    def write_then(
        self, vchannel: str, change: GroupChange, answered: Callable[[Refusal | None], None]
    ) -> None:
        """`write` without waiting: calls `answered` once, perhaps synchronously."""

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            settled = self._settled(vchannel, change, outcomes[0])
            answered(settled if isinstance(settled, Refusal) else None)

        message = _message(vchannel, change)
        append_then(self._located, (message,), settle, deadline_s=WRITE_S)

    def _settled(
        self, vchannel: str, change: GroupChange, outcome: RunOutcome
    ) -> TimeTick | Refusal:
        assert not isinstance(outcome, PlacedApart), "a change is no row"
        if isinstance(outcome, Refusal):
            return outcome
        if not isinstance(change, AckedInTxn):  # held already, since it was placed
            self._opened.groups.table.apply(vchannel, change, outcome.tick)
        return outcome.tick


def _message(vchannel: str, change: GroupChange) -> NewMessage:
    body = encode_change(change)
    txn = TxnContext(change.txn, 0) if isinstance(change, AckedInTxn) else None
    return NewMessage(vchannel, GROUP_CHANGE, body, len(body), txn=txn)
