"""One open transaction: its lease, and how far it has come, from its begin to its end.

It owns the question whether the lease is over, which ticks decide and not the clock: a timer only
says when to look. It never decides what the log takes: an append to a transaction whose ticks are
over is refused by the sequencer, whether this actor has looked or not. What depends on it is that a
forgotten transaction ends, and stops to hold back what is confirmed.
Next: broker/node/append/appender.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from actors import Actor, ActorError, Context, Envelope
from broker.core.txn.txn_lease import lease_left_ms
from broker.core.txn.txn_view import TxnView
from broker.model.ids import PChannelName
from broker.node.appender_messages import ExpireTxns, ShowTxns
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

SHOW_S = 10.0


@dataclass(frozen=True, slots=True)
class TxnProgressed:
    """The transaction as it is now."""

    view: TxnView


@dataclass(frozen=True, slots=True)
class TxnEnded:
    """The log holds its commit or rollback."""


@dataclass(frozen=True, slots=True)
class CheckLease:
    """A timer: compare the closed tick with the lease."""


TransactionMessage = TxnProgressed | TxnEnded | CheckLease
CHECK_LEASE = CheckLease()


class Transaction(Actor[TransactionMessage]):
    """See the module. `view`: how it stood when its actor was wanted first."""

    _context: Context[TransactionMessage]

    def __init__(self, name: PChannelName, view: TxnView, node: NodeRuntime) -> None:
        self._name = name
        self._view = view
        self._node = node
        self._age_ms_max = node.limits.txns.age_of(view.stage)
        self._sure = True

    async def started(self, context: Context[TransactionMessage]) -> None:
        """The timer is set once a lease, and not moved by every body. Restarted, it looks soon."""
        self._context = context
        self._sure = context.term == 1
        if self._sure:
            left_ms = lease_left_ms(self._view, self._view.last_tick, self._age_ms_max)
            context.after(left_ms / 1000, CHECK_LEASE)
        else:
            context.after(self._node.limits.tick_interval_s, CHECK_LEASE)

    async def receive(self, batch: Sequence[Envelope[TransactionMessage]]) -> None:
        """Remember how it stands; when the lease seems over, make sure and have it ended."""
        for envelope in batch:
            match envelope.message:
                case TxnProgressed(view):
                    self._view = view
                case TxnEnded():
                    self._context.stop()
                case CheckLease():
                    await self._check()
                case _:
                    assert_never(envelope.message)

    def statistics(self) -> Mapping[str, int | float | str]:
        """How it stands, as far as it was told."""
        view = self._view
        staged = {} if view.stage is None else {"stage": str(view.stage)}
        return {
            **staged,
            "vchannel": view.vchannel,
            "state": view.state.value,
            "keepalive_ms": view.context.keepalive_ms,
            "bodies": view.bodies,
            "size_bytes": view.size_bytes,
            "last_tick": view.last_tick,
        }

    async def _check(self) -> None:
        """Ticks decide."""
        opened = self._node.open_channels.find(self._name)
        left_ms = 0.0
        if opened is not None:
            left_ms = self._left_ms(opened)
            if left_ms <= 0 or not self._sure:
                await self._make_sure(opened)
                left_ms = self._left_ms(opened)
            if left_ms <= 0:
                self._have_ended(opened)
        delay_s = max(left_ms / 1000, self._node.limits.tick_interval_s)
        self._context.after(delay_s, CHECK_LEASE)

    def _have_ended(self, opened: OpenChannel) -> None:
        try:
            opened.appender.tell(ExpireTxns())
        except ActorError:  # busy or gone: it is looked at again
            return

    async def _make_sure(self, opened: OpenChannel) -> None:
        """Messages may have been lost, or none was seen yet in this life."""
        try:
            views = await opened.appender.ask(ShowTxns(), deadline_s=SHOW_S)
        except ActorError:
            return
        self._sure = True
        txn_id = self._view.context.id
        found = [view for view in views if view.context.id == txn_id]
        if found:
            self._view = found[0]
        else:
            self._context.stop()

    def _left_ms(self, opened: OpenChannel) -> float:
        return lease_left_ms(self._view, opened.tail.closed.tick, self._age_ms_max)
