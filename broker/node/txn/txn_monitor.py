"""Who watches over the transactions of one pchannel: starts an actor for each and keeps it told.

The Appender tells it of begins and ends with the group that holds them, and of the rest at ticks,
so that no row costs a hop. It decides nothing: what is admitted is the Appender's business, and how
long a lease lasts the Transaction's.
Why it may lose a message: it notices, and asks who is open; and a Transaction that was not told
asks before it acts.
Next: broker/node/txn/transaction.py
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
        self._found_ended: set[TxnId] = set()
        """Since the last look round; whether their ends are still to be told is not known."""
        self._started = self._missed = 0

    async def started(self, context: Context[TxnMonitorMessage]) -> None:
        """Resync: an earlier owner or an earlier TxnMonitor may have left transactions open."""
        self._context = context
        self._children = f"{context.path.rpartition('/')[0]}/{TRANSACTIONS}"
        context.after(0.0, Resync())

    async def receive(self, batch: Sequence[Envelope[TxnMonitorMessage]]) -> None:
        """One that came and went gets its actor, too; of all others the newest view counts."""
        begun, ended, moved = Views(), Views(), Views()
        looks = self._context.shed > self._missed
        self._missed = self._context.shed
        for envelope in batch:
            match envelope.message:
                case TxnsChanged(turned, others):
                    for view in turned:
                        lives = view.state is TxnState.IN_FLIGHT
                        (begun if lives else ended)[view.context.id] = view
                    moved |= {view.context.id: view for view in others}
                case Resync():
                    looks = True
                case _:
                    assert_never(envelope.message)
        short = [view for txn_id, view in ended.items() if txn_id not in self._found_ended]
        await self._start([*begun.values(), *short])
        for txn_id, view in moved.items():
            self._tell(txn_id, TxnProgressed(view))
        self._forget(ended)
        if looks:
            await self._look_around()

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many transactions have an actor now, and how many had one in this life."""
        return {"open": len(self._watched), "started": self._started}

    async def _look_around(self) -> None:
        """Never in `started`: what stands beside it may be going away meanwhile."""
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            return
        try:
            views = await opened.appender.ask(ShowTxns(), deadline_s=SHOW_S)
        except ActorError:
            self._context.after(self._node.limits.tick_interval_s, Resync())
            return
        self._found_ended = self._watched.keys() - {view.context.id for view in views}
        self._forget(self._found_ended)
        await self._start(views)

    async def _start(self, views: Iterable[TxnView]) -> None:
        """Actors for those that have none yet."""
        new = {view.context.id: view for view in views if view.context.id not in self._watched}
        if not new:
            return
        specs = [transaction_spec(self._name, view, self._node) for view in new.values()]
        try:
            started = await self._context.tree.start_children(self._children, specs)
        except ActorError:  # the channel is being closed, or they start again with it
            self._context.after(self._node.limits.tick_interval_s, Resync())
            return
        for txn_id, ref in zip(new, started, strict=True):
            if isinstance(ref, Ref):
                self._started += 1
                self._watched[txn_id] = ref
            elif isinstance(ref, NameTaken):  # an earlier TxnMonitor has started it
                self._adopt(txn_id)

    def _adopt(self, txn_id: TxnId) -> None:
        found = self._find(txn_id)
        if found is not None:
            self._watched[txn_id] = found

    def _forget(self, txn_ids: Iterable[TxnId]) -> None:
        for txn_id in txn_ids:
            self._tell(txn_id, _ENDED)
            self._watched.pop(txn_id, None)

    def _tell(self, txn_id: TxnId, message: TransactionMessage) -> None:
        """One that is being restarted asks for itself."""
        ref: Ref[Any] | None = self._watched.get(txn_id)
        try:
            if ref is not None:
                ref.tell(message)
        except ActorError:
            self._tell_newer(txn_id, message)

    def _tell_newer(self, txn_id: TxnId, message: TransactionMessage) -> None:
        """The incarnation that was known is over."""
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
    """One transaction; killed, it comes back and asks the Appender how it stands."""
    return ChildSpec(
        name=str(view.context.id),
        build=lambda: Transaction(name, view, node),
        mailbox=_MAILBOX,
        restart=Restart.TRANSIENT,
    )


_MAILBOX = MailboxSpec(bound=64, overflow=Overflow.SHED, batch_max=64)
