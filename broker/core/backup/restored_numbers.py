"""From where a restored cluster numbers on, so that it repeats nothing that was given out before.

After the backup the cluster went on, and clients have seen what it gave out: terms, ids of
collections, ticks. Nothing of that is in the backup, so counters jump by more than a cluster
counts in its life, and ticks continue at the time of the restore.
"""

from typing import Final

from broker.core.master.id_window import FIRST_ID, WINDOW
from broker.core.time.tso import physical_ms_of
from broker.model.ids import Term, TimeTick

JUMP: Final = 1_000_000
"""Terms and counters grow with starts, failures and new collections. File names hold terms of ten
digits, so there is room for thousands of restores of one cluster. Of ids each start takes a window,
so they jump by as many windows: there is room for half a million restores."""


def term_after(recorded: Term, in_log: Term) -> Term:
    """A term above every one that was in use. A log may have a newer term than its record."""
    return Term(max(recorded, in_log) + JUMP)


def counter_after(number: int) -> int:
    """A counter above every number that it gave out."""
    return number + JUMP


def ids_after(bound: int) -> int:
    """A bound of ids above every id that was given out."""
    return max(bound, FIRST_ID) + JUMP * WINDOW


def tick_bound_after(saved_ms: int, tick: TimeTick, now_ms: int) -> int:
    """The bound below which the oracle never issues a tick again, in milliseconds.

    `now_ms`: the clock at the restore. Ticks that were issued after the backup lie below it, unless
    this clock is behind that of the machine that issued them.
    """
    return max(saved_ms, physical_ms_of(tick) + 1, now_ms)
