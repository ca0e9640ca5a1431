"""One open transaction: its lease, and how far it has come, from its begin to its end.

It owns the question whether the lease is over, which ticks decide and not the clock: a timer only
says when to look. It never decides what the log takes: an append to a transaction whose ticks are
over is refused by the sequencer, whether this actor has looked or not. What depends on it is that a
forgotten transaction ends, and stops to hold back what is confirmed.
Next: broker/node/appender.py
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from actors import Actor, ActorError, Context, Envelope, Timer
from broker.core.lease import TxnView, lease_left_ms
from broker.core.txn_state import TxnState
from broker.model.ids import PChannelName, TxnId
from broker.node.messages import ExpireTxns, LeaseOver, ShowTxns, TransactionMessage, TxnMoved
from broker.node.open_channels import OpenChannel
from broker.node.parts import NodeParts

SHOW_S = 10.0
LEASE_OVER = LeaseOver()


class Transaction(Actor[TransactionMessage]):
    """See the module."""

    _context: Context[TransactionMessage]

    def __init__(self, name: PChannelName, txn_id: TxnId, parts: NodeParts) -> None:
        self._name = name
        self._txn_id = txn_id
        self._parts = parts
        self._age_ms_max = parts.limits.txns.age_ms_max
        self._view: TxnView | None = None
        self._timer: Timer | None = None

    async def started(self, context: Context[TransactionMessage]) -> None:
        """Look soon; the Roster usually tells how it stands before that."""
        self._context = context
        self._look_again(self._parts.limits.tick_interval_s)

    async def receive(self, batch: Sequence[Envelope[TransactionMessage]]) -> None:
        """Remember how it stands; when the lease seems over, make sure and have it ended."""
        for envelope in batch:
            match envelope.message:
                case TxnMoved(view):
                    self._take(view)
                case LeaseOver():
                    await self._check()
                case _:
                    assert_never(envelope.message)

    def statistics(self) -> Mapping[str, int | float | str]:
        """How it stands, as far as it was told."""
        view = self._view
        if view is None:
            return {}
        return {
            "vchannel": view.vchannel,
            "state": view.state.value,
            "keepalive_ms": view.context.keepalive_ms,
            "bodies": view.bodies,
            "size_bytes": view.size_bytes,
            "last_tick": view.last_tick,
        }

    def _take(self, view: TxnView) -> None:
        first = self._view is None
        self._view = view
        if view.state is not TxnState.IN_FLIGHT:
            self._context.stop()
        elif first:
            self._look_again(
                lease_left_ms(view, view.last_tick, self._parts.limits.txns.age_ms_max) / 1000
            )

    async def _check(self) -> None:
        """Ticks decide. The timer is set once a lease, and not moved by every batch."""
        opened = self._parts.open_channels.find(self._name)
        if opened is None:
            self._look_again(self._parts.limits.tick_interval_s)
            return
        left_ms = self._left_ms(opened)
        if left_ms <= 0:
            await self._make_sure(opened)
            left_ms = self._left_ms(opened)
        if left_ms <= 0:
            self._have_ended(opened)
        self._look_again(max(left_ms / 1000, self._parts.limits.tick_interval_s))

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
        found = [view for view in views if view.context.id == self._txn_id]
        if found:
            self._view = found[0]
        else:
            self._context.stop()

    def _left_ms(self, opened: OpenChannel) -> float:
        if self._view is None:
            return 0.0
        return lease_left_ms(
            self._view, opened.tail.closed.tick, self._parts.limits.txns.age_ms_max
        )

    def _look_again(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.after(delay_s, LEASE_OVER)
