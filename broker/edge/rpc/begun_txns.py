"""Holds identities to the number of transactions that they may have open.

The place is taken in the moment in which the begin is handed to the Appender, which answers each
message: so no place is taken by a begin that nobody appends.
"""

from collections.abc import Callable, Sequence
from functools import partial

from broker.core.pressure.txn_places import TxnPlace
from broker.edge.rpc.quotas import Quotas
from broker.model.failure import Refusal
from broker.model.message import AppendedInTxn, MessageType, NewMessage
from broker.node.appender_messages import RunOutcome
from broker.node.directory_messages import ChannelView

Settle = Callable[[tuple[RunOutcome, ...]], None]
Messages = tuple[NewMessage, ...]


def within_txn_limit(
    messages: Messages, settle: Settle, quotas: Quotas, identity: str, view: ChannelView
) -> tuple[Messages, Settle]:
    """The messages to append, and who gets their outcomes.

    Left out are begins of transactions beyond the limit of the identity: `settle` gets their
    refusal with the outcomes of the others.
    """
    if not any(it.type == MessageType.BEGIN_TXN for it in messages):
        return messages, settle
    places = [
        quotas.begin_txn(identity, view.superseded_by(it))
        if it.type == MessageType.BEGIN_TXN
        else None
        for it in messages
    ]
    pairs = zip(messages, places, strict=True)
    admitted = tuple([it for it, place in pairs if not isinstance(place, Refusal)])
    return admitted, partial(_settle, settle, places, view)


def _settle(
    settle: Settle,
    places: Sequence[TxnPlace | Refusal | None],
    view: ChannelView,
    outcomes: tuple[RunOutcome, ...],
) -> None:
    appended = iter(outcomes)
    whole: list[RunOutcome] = []
    for place in places:
        outcome = place if isinstance(place, Refusal) else next(appended)
        if isinstance(place, TxnPlace):
            if isinstance(outcome, AppendedInTxn):
                place.begun(partial(view.has_open_txn, outcome.txn.id))
            else:
                place.failed()
        whole.append(outcome)
    settle(tuple(whole))
