"""Who watches over the transactions of one pchannel: starts an actor for each and keeps it told.

The Appender tells it at each tick, so that no row and no short transaction costs a hop. It decides
nothing: what is admitted is the Appender's business, and how long a lease lasts the Transaction's.
Why it may lose a message: a Transaction that was not told asks before it acts.
Next: broker/node/transaction.py
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from actors import Actor, ActorError, ChildSpec, Context, Envelope, MailboxSpec, Overflow, Restart
from broker.core.lease import TxnView
from broker.core.txn_state import TxnState
from broker.model.ids import PChannelName, TxnId
from broker.node.messages import (
    AppenderMessage,
    LookAround,
    RosterMessage,
    ShowTxns,
    TxnMoved,
    TxnsMoved,
)
from broker.node.parts import NodeParts
from broker.node.transaction import Transaction

ROSTER = "roster"
TRANSACTIONS = "transactions"
SHOW_S = 10.0
MOVED_MAX = 1024
"""Transactions that may have changed before the Roster is told between two ticks."""


class Roster(Actor[RosterMessage]):
    """See the module."""

    _context: Context[RosterMessage]
    _children: str

    def __init__(self, name: PChannelName, parts: NodeParts) -> None:
        self._name = name
        self._parts = parts
        self._watched: set[TxnId] = set()
        self._started = 0

    async def started(self, context: Context[RosterMessage]) -> None:
        """There may be some that are open already: an earlier owner's, or of a Roster that died."""
        self._context = context
        self._children = f"{context.path.rpartition('/')[0]}/{TRANSACTIONS}"
        context.after(0.0, LookAround())

    async def receive(self, batch: Sequence[Envelope[RosterMessage]]) -> None:
        """Of each transaction only the newest view counts; one that came and went needs nobody."""
        views: dict[TxnId, TxnView] = {}
        for envelope in batch:
            match envelope.message:
                case TxnsMoved(moved):
                    views |= {view.context.id: view for view in moved}
                case LookAround():
                    views |= {view.context.id: view for view in await self._open_now()}
                case _:
                    assert_never(envelope.message)
        await self._follow(list(views.values()))

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many transactions have an actor now, and how many had one in this life."""
        return {"open": len(self._watched), "started": self._started}

    async def _open_now(self) -> Sequence[TxnView]:
        """Never waits in `started`: what stands beside it may be going away meanwhile."""
        opened = self._parts.open_channels.find(self._name)
        try:
            if opened is not None:
                return await opened.appender.ask(ShowTxns(), deadline_s=SHOW_S)
        except ActorError:
            self._context.after(self._parts.limits.tick_interval_s, LookAround())
        return ()

    async def _follow(self, views: Sequence[TxnView]) -> None:
        for view in views:
            txn_id = view.context.id
            if txn_id in self._watched:
                self._tell(view)
            elif view.state is TxnState.IN_FLIGHT:
                await self._start(view)
            if view.state is not TxnState.IN_FLIGHT:
                self._watched.discard(txn_id)

    def _tell(self, view: TxnView) -> None:
        try:
            self._context.tree.find(f"{self._children}/{view.context.id}").tell(TxnMoved(view))
        except ActorError:  # it is being restarted, and asks for itself
            return

    async def _start(self, view: TxnView) -> None:
        try:
            spec = transaction_spec(self._name, view.context.id, self._parts)
            await self._context.tree.start_child(self._children, spec)
        except ActorError:  # an earlier Roster has started it, or the channel is being closed
            pass
        self._watched.add(view.context.id)
        self._started += 1
        self._tell(view)


def tell_roster(writer: Context[AppenderMessage], moved: tuple[TxnView, ...]) -> None:
    """Called by its Appender. A Roster that is away asks for itself when it is back.

    At a tick and not with every group: most have come and gone by then, and need nobody.
    """
    if not moved:
        return
    try:
        writer.tree.find(f"{writer.path.rpartition('/')[0]}/{ROSTER}").tell(TxnsMoved(moved))
    except ActorError:
        return


def transaction_spec(name: PChannelName, txn_id: TxnId, parts: NodeParts) -> ChildSpec:
    """One transaction; killed, it comes back and asks the Appender how it stands."""
    return ChildSpec(
        name=str(txn_id),
        build=lambda: Transaction(name, txn_id, parts),
        mailbox=MailboxSpec(bound=64, overflow=Overflow.SHED, batch_max=64),
        restart=Restart.TRANSIENT,
    )
