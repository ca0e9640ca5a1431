"""The state tables of the cores, drawn from the tables that decide."""

from broker.core.cluster.broadcast_state import TRANSITIONS
from broker.core.txn.txn_state import NEXT, TxnEvent
from broker.model.failure import StreamingCode
from pages.markdown import table


def state_tables() -> str:
    """Transactions and broadcasts: what each event leads to."""
    parts = (
        "**A transaction.** A code refuses the event; a dash means that nothing changes.",
        _txns(),
        "**A broadcast.**",
        _broadcasts(),
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
