"""Starts an actor for each open transaction of a pchannel and reports progress to it.

The Appender reports begins and ends with the group that holds them and progress at ticks, so that
no message costs a hop. Reports may be lost: then this actor resyncs with the Appender, and a
Transaction always asks the Appender before it acts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from actors import (
    Actor,
    ActorError,
    ChildSpec,
    Context,
    Envelope,
    MailboxSpec,
    NameTaken,
    Overflow,
    Ref,
    Restart,
)
from broker.core.txn.txn_state import TxnState
from broker.core.txn.txn_view import TxnView
from broker.model.ids import PChannelName, TxnId
from broker.node.appender_messages import ShowTxns
from broker.node.state.node_runtime import NodeRuntime
from broker.node.txn.transaction import Transaction, TransactionMessage, TxnEnded, TxnProgressed

TXN_MONITOR = "txn_monitor"
TRANSACTIONS = "transactions"
SHOW_S = 10.0
Views = dict[TxnId, TxnView]
_ENDED = TxnEnded()


@dataclass(frozen=True, slots=True)
class TxnsChanged:
    """What happened to transactions, once it is durable.

    `turned` began or ended; those in flight are open. `moved`: other open ones that got messages.
    """

    turned: tuple[TxnView, ...]
    moved: tuple[TxnView, ...] = ()


@dataclass(frozen=True, slots=True)
class Resync:
    """A timer: ask the Appender which transactions are open."""


TxnMonitorMessage = TxnsChanged | Resync


class TxnMonitor(Actor[TxnMonitorMessage]):
    """See the module."""

    _context: Context[TxnMonitorMessage]
    _children: str

    def __init__(self, name: PChannelName, node: NodeRuntime) -> None:
        self._name = name
        self._node = node
        self._watched: dict[TxnId, Ref[TransactionMessage]] = {}
        self._resynced_ended: set[TxnId] = set()
        """Ended ones found by the last resync. Late reports of them start no actor."""
        self._started = self._missed = 0

    async def started(self, context: Context[TxnMonitorMessage]) -> None:
        """Resync: an earlier owner or an earlier TxnMonitor may have left transactions open."""
        self._context = context
        self._children = f"{context.path.rpartition('/')[0]}/{TRANSACTIONS}"
        context.after(0.0, Resync())

    async def receive(self, batch: Sequence[Envelope[TxnMonitorMessage]]) -> None:
        """Start and stop actors; of several views of one transaction the newest counts."""
        begun, ended, moved = Views(), Views(), Views()
        lost = self._context.shed > self._missed  # reports, when the mailbox was full
        self._missed = self._context.shed
        for envelope in batch:
            match envelope.message:
                case TxnsChanged(turned, others):
                    for view in turned:
                        lives = view.state is TxnState.IN_FLIGHT
                        (begun if lives else ended)[view.context.id] = view
                    moved |= {view.context.id: view for view in others}
                case Resync():
                    lost = True
                case _:
                    assert_never(envelope.message)
        # Those that ended before their begin was seen get an actor, too, which `_end` stops: every
        # transaction is seen in the tree, however short.
        short = [view for txn_id, view in ended.items() if txn_id not in self._resynced_ended]
        await self._start([*begun.values(), *short])
        for txn_id, view in moved.items():
            self._tell(txn_id, TxnProgressed(view))
        self._end(ended)
        if lost:
            await self._resync()

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many transactions have an actor now, and how many this incarnation started."""
        return {"open": len(self._watched), "started": self._started}

    async def _resync(self) -> None:
        """Ask the Appender for all open transactions.

        Not called in `started`, where the supervisor would wait for the Appender beside it.
        """
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            return
        try:
            views = await opened.appender.ask(ShowTxns(), deadline_s=SHOW_S)
        except ActorError:
            self._context.after(self._node.limits.tick_interval_s, Resync())
            return
        self._resynced_ended = self._watched.keys() - {view.context.id for view in views}
        self._end(self._resynced_ended)
        await self._start(views)

    async def _start(self, views: Iterable[TxnView]) -> None:
        """Start actors for transactions without one."""
        new = {view.context.id: view for view in views if view.context.id not in self._watched}
        if not new:
            return
        specs = [transaction_spec(self._name, view, self._node) for view in new.values()]
        try:
            started = await self._context.tree.start_children(self._children, specs)
        except ActorError:  # the channel is closing or restarting
            self._context.after(self._node.limits.tick_interval_s, Resync())
            return
        for txn_id, ref in zip(new, started, strict=True):
            if isinstance(ref, Ref):
                self._started += 1
                self._watched[txn_id] = ref
            elif isinstance(ref, NameTaken):  # started by an earlier TxnMonitor
                self._adopt(txn_id)

    def _adopt(self, txn_id: TxnId) -> None:
        found = self._find(txn_id)
        if found is not None:
            self._watched[txn_id] = found

    def _end(self, txn_ids: Iterable[TxnId]) -> None:
        for txn_id in txn_ids:
            self._tell(txn_id, _ENDED)
            self._watched.pop(txn_id, None)

    def _tell(self, txn_id: TxnId, message: TransactionMessage) -> None:
        """Send to a Transaction; one that is restarting asks the Appender itself."""
        ref: Ref[Any] | None = self._watched.get(txn_id)
        try:
            if ref is not None:
                ref.tell(message)
        except ActorError:
            self._tell_newer(txn_id, message)

    def _tell_newer(self, txn_id: TxnId, message: TransactionMessage) -> None:
        """Send to the next incarnation of a Transaction that died."""
        self._adopt(txn_id)
        try:
            self._watched[txn_id].tell(message)
        except ActorError:
            return

    def _find(self, txn_id: TxnId) -> Ref[TransactionMessage] | None:
        try:
            return self._context.tree.find(f"{self._children}/{txn_id}")
        except ActorError:
            return None


def transaction_spec(name: PChannelName, view: TxnView, node: NodeRuntime) -> ChildSpec:
    """One transaction's actor; after a restart it asks the Appender for its state."""
    return ChildSpec(
        name=str(view.context.id),
        build=lambda: Transaction(name, view, node),
        mailbox=_MAILBOX,
        restart=Restart.TRANSIENT,
    )


# Shedding costs nothing: the actor asks the Appender before it acts on a view.
_MAILBOX = MailboxSpec(bound=64, overflow=Overflow.SHED, batch_max=64)
