"""The lease of one open transaction: has the Appender roll it back when its client is gone.

Closed ticks decide whether the lease is over; a timer only says when to check. The sequencer
refuses appends after the lease whether or not this actor has checked. This actor ends abandoned
transactions, which would hold back the last confirmed id and truncation.
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
    """See the module. `view`: the transaction when its actor was started first."""

    _context: Context[TransactionMessage]

    def __init__(self, name: PChannelName, view: TxnView, node: NodeRuntime) -> None:
        self._name = name
        self._view = view
        self._node = node
        self._confirmed = True

    async def started(self, context: Context[TransactionMessage]) -> None:
        """Set a timer for the end of the lease, not moved by each message; soon after a restart."""
        self._context = context
        # A restarted actor has the view of its first start, which is old by now.
        self._confirmed = context.term == 1
        if self._confirmed:
            left_ms = lease_left_ms(self._view, self._view.last_tick, self._age_ms_max())
            context.after(left_ms / 1000, CHECK_LEASE)
        else:
            context.after(self._node.limits.tick_interval_s, CHECK_LEASE)

    def _age_ms_max(self) -> int:
        return self._node.limits.txns.age_of(self._view.stage)

    async def receive(self, batch: Sequence[Envelope[TransactionMessage]]) -> None:
        """Keep the newest view; when the lease seems over, ask the Appender, then have it end."""
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
        """The newest view reported to it."""
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
        """Compare the lease with the closed tick, and set the next timer."""
        opened = self._node.open_channels.find(self._name)
        left_ms = 0.0
        if opened is not None:
            left_ms = self._left_ms(opened)
            if left_ms <= 0 or not self._confirmed:
                # Progress is reported at ticks and may be lost, so the view may be older than the
                # transaction.
                await self._confirm(opened)
                left_ms = self._left_ms(opened)
            if left_ms <= 0:
                self._request_expiry(opened)
        # Not before the next tick: nothing else can end a lease.
        delay_s = max(left_ms / 1000, self._node.limits.tick_interval_s)
        self._context.after(delay_s, CHECK_LEASE)

    def _request_expiry(self, opened: OpenChannel) -> None:
        try:
            opened.appender.tell(ExpireTxns())
        except ActorError:  # busy or gone: checked again at the next timer
            return

    async def _confirm(self, opened: OpenChannel) -> None:
        """Get the state from the Appender: reports may have been lost."""
        try:
            views = await opened.appender.ask(ShowTxns(), deadline_s=SHOW_S)
        except ActorError:
            return
        self._confirmed = True
        txn_id = self._view.context.id
        found = [view for view in views if view.context.id == txn_id]
        if found:
            self._view = found[0]
        else:
            self._context.stop()

    def _left_ms(self, opened: OpenChannel) -> float:
        return lease_left_ms(self._view, opened.tail.closed.tick, self._age_ms_max())
