"""Appends changes of a group to its vchannel's log, and applies them to the table when durable.

Those of a transaction are applied by its commit instead: see `ChannelGroups.end_txns`.

The table is changed by the answer itself, not by the actor that asked: so it has every change that
became durable, whoever died or stopped waiting meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from actors import Clock
from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    encode_change,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey
from broker.model.ids import MessageId, TimeTick
from broker.model.message import GROUP_CHANGE, RELEASED, NewMessage, NewRun
from broker.model.txn import TxnContext
from broker.node.append.intake import append, append_then
from broker.node.appender_messages import AppendOutcome, PlacedApart, RunOutcome
from broker.node.directory_messages import Located
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.state.oracle_view import OracleView

WRITE_S: Final = 30.0
"""So long somebody waits for a change."""
OUTCOME_S: Final = 1e9
"""The outcome itself comes whenever the Appender knows it, or when the Appender ends."""


class GroupWriter:
    """For the groups of one open pchannel."""

    def __init__(self, opened: OpenChannel, node: NodeRuntime, clock: Clock) -> None:
        self._opened = opened
        self._clock = clock
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
        """Write the change; its tick once it is durable and in the table.

        UNKNOWN after `WRITE_S`, and when the Appender ends. A change that is stored later is in
        the table all the same, also when the caller was cancelled.
        """
        answer: asyncio.Future[TimeTick | Refusal] = asyncio.get_running_loop().create_future()

        def settle(written: TimeTick | Refusal) -> None:
            if not answer.done():
                answer.set_result(written)

        self._write(vchannel, change, settle)
        late = self._clock.call_later(WRITE_S, partial(settle, _late(vchannel, change)))
        try:
            return await answer
        finally:
            late.cancel()

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
        """`write` without waiting: calls `answered` once, perhaps synchronously, perhaps late.

        The outcome is UNKNOWN only when the Appender has ended: until then nothing is guessed.
        """

        def settle(written: TimeTick | Refusal) -> None:
            answered(written if isinstance(written, Refusal) else None)

        self._write(vchannel, change, settle)

    def _write(
        self, vchannel: str, change: GroupChange, answered: Callable[[TimeTick | Refusal], None]
    ) -> None:
        groups, key = self._opened.groups, GroupKey(vchannel, change.name)
        of_keeper = isinstance(change, _OF_KEEPERS)
        if of_keeper:
            groups.unsettled.add(key)
        else:
            groups.sent(key)

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            try:
                settled = self._settled(vchannel, change, outcomes[0])
            finally:
                if of_keeper:
                    groups.unsettled.discard(key)
                else:
                    groups.landed(key)
            answered(settled)

        message = _message(vchannel, change)
        append_then(self._located, (message,), settle, deadline_s=OUTCOME_S)

    def _settled(
        self, vchannel: str, change: GroupChange, outcome: RunOutcome
    ) -> TimeTick | Refusal:
        assert not isinstance(outcome, PlacedApart), "a change is no row"
        if isinstance(outcome, Refusal):
            return outcome
        if not isinstance(change, AckedInTxn):  # held already, since it was placed
            self._opened.groups.table.apply(vchannel, change, outcome.tick)
        if isinstance(change, GroupDropped):
            self._opened.groups.drop_notes(GroupKey(vchannel, change.name))
        return outcome.tick


_OF_KEEPERS = (GroupCreated, GroupAltered, GroupSought, GroupDropped)
"""Changes made one after the other, while the group does not run."""


def _late(vchannel: str, change: GroupChange) -> Refusal:
    cause = (
        f"the writer of {vchannel} has not stored a change of group {change.name!r} within"
        f" {WRITE_S} s; it takes effect if it is stored later: list the groups"
    )
    return Refusal(StreamingCode.UNKNOWN, cause)


def _message(vchannel: str, change: GroupChange) -> NewMessage:
    body = encode_change(change)
    txn = TxnContext(change.txn, 0) if isinstance(change, AckedInTxn) else None
    return NewMessage(vchannel, GROUP_CHANGE, body, len(body), txn=txn)
