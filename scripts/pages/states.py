"""The state tables of the cores, drawn from the tables that decide."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from broker.core.cluster.assignment import PChannelMeta, assign, lost, served, taken
from broker.core.cluster.broadcast_state import TRANSITIONS
from broker.core.txn.batch_commit import COMMANDS, CommitState
from broker.core.txn.txn_state import NEXT, TxnEvent
from broker.model.channel import PChannelState
from broker.model.failure import StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from pages.markdown import table


def state_tables() -> str:
    """Transactions, assignments, broadcasts and batch commits: what each event leads to."""
    parts = (
        "**A transaction.** A code refuses the event; a dash means that nothing changes.",
        _txns(),
        "**A broadcast.**",
        _broadcasts(),
        "**The assignment of a pchannel.** `+1` raises the term; a dash: nothing changes.",
        _assignments(),
        "**The commit of a batch.** Each state is recorded before its command is sent.",
        _commits(),
    )
    return "\n\n".join(parts)


def _txns() -> str:
    rows = []
    for state, follows in NEXT.items():
        cells = []
        for event in TxnEvent:
            after = follows[event]
            if after is None:
                cells.append("-")
            elif isinstance(after, StreamingCode):
                cells.append(f"{after.name}")
            else:
                cells.append(after.value)
        rows.append((state.value, *cells))
    return table(("state", *(event.value for event in TxnEvent)), rows)


def _broadcasts() -> str:
    rows = [(state.value, step.value, after.value) for (state, step), after in TRANSITIONS.items()]
    return table(("state", "event", "next state"), rows)


_NODE: Final = NodeId(1)
_TERM: Final = Term(7)
_ASSIGNMENT_EVENTS: Final[Mapping[str, Callable[[PChannelMeta], PChannelMeta]]] = {
    "assigned to a node": lambda meta: assign(meta, NodeId(2)),
    "the node serves it": lambda meta: served(meta, _NODE, _TERM, 0),
    "found dead at this term": lambda meta: lost(meta, _TERM),
    "its node claims a larger term": lambda meta: taken(meta, _NODE, Term(_TERM + 1)),
}


def _assignments() -> str:
    rows = []
    for state in PChannelState:
        if state is PChannelState.UNKNOWN:
            continue
        meta = PChannelMeta(PChannelName("p"), _TERM, state, _NODE)
        rows.append((state.name, *(_moved(meta, each) for each in _ASSIGNMENT_EVENTS.values())))
    return table(("state", *_ASSIGNMENT_EVENTS), rows)


def _moved(meta: PChannelMeta, event: Callable[[PChannelMeta], PChannelMeta]) -> str:
    after = event(meta)
    if replace(after, assigned_ms=meta.assigned_ms) == meta:
        return "-"
    return after.state.name + (" +1" if after.term > meta.term else "")


_COMMIT_STEPS: Final[Mapping[CommitState, tuple[str, str]]] = {
    CommitState.PREPARING: (
        "all voted to commit",
        "committing; aborting on refusal or timeout",
    ),
    CommitState.COMMITTING: ("every log has the commit", "done: the app's newest batch"),
    CommitState.ABORTING: ("every log has the rollback, or no such transaction", "removed"),
}


def _commits() -> str:
    rows = [(state.value, COMMANDS[state].value, *_COMMIT_STEPS[state]) for state in CommitState]
    return table(("state", "command sent to each transaction", "ends when", "next state"), rows)
