"""How long the reconciler of a pchannel waits for nodes, and between its attempts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReconcilerTiming:
    """Deadlines and pauses.

    `assign_deadline_s` bounds the opening of a log with its recovery: a short one would cancel the
    recovery of a large log, at each new term again, for ever. `remove_deadline_s` bounds closing,
    open transactions included; `ask_deadline_s` the other calls. A failed attempt is repeated after
    `retry_first_s`, doubling to `retry_max_s`. A node that closed a channel has `reopen_grace_s` to
    open it again; the channels of a node that is gone wait `node_lost_grace_s` for it.
    """

    assign_deadline_s: float = 300.0
    ask_deadline_s: float = 5.0
    remove_deadline_s: float = 30.0
    retry_first_s: float = 0.05
    retry_max_s: float = 5.0
    reopen_grace_s: float = 5.0
    node_lost_grace_s: float = 0.0
    reconcile_s: float = 15.0
