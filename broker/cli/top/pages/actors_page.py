"""The page of actors: the tree with sums, folded to its upper levels unless expanded."""

from collections import defaultdict
from collections.abc import Sequence

from broker.cli.show.tables import natural_order
from broker.cli.top.look import Look
from broker.cli.top.section import (
    Page,
    PageColumn,
    PageRow,
    Section,
    count_column,
    name_column,
    text_column,
)
from broker.client.cluster import ActorInfo

OPEN_DEPTH = 2
"""Levels that are shown while folded; deeper ones repeat for each channel."""
NO_ACTORS = "The broker names no actor."
NOTES = (
    "`e` shows every actor, or folds the tree again; those that do not run or were restarted stay",
    "term: grows with each restart; a pchannel's owner writes at the term of its appender",
    "mailbox, of: messages in the fullest mailbox below, and its limit",
    "a supervisor shows the sums of everything below it",
)
COLUMNS: tuple[PageColumn, ...] = (
    name_column("a", "actor", 28),
    text_column("state"),
    count_column("t", "term", 2),
    count_column("m", "mailbox"),
    count_column("", "of", 1),
    count_column("h", "handled/s"),
    count_column("s", "restarts"),
    text_column("last error", 3),
)


def actors_page(look: Look, *, expanded: bool) -> Page:
    """Parents before children, siblings in natural order."""
    rows = [
        _row(look, it, below)
        for it, below in _tree(look.broker.actors)
        if expanded or it.path.count("/") - 1 <= OPEN_DEPTH or _is_odd(look, it)
    ]
    return Page("actors", (Section("actors", COLUMNS, rows, NO_ACTORS),), NOTES)


def _tree(actors: Sequence[ActorInfo]) -> list[tuple[ActorInfo, list[ActorInfo]]]:
    """Each actor with itself and all below it."""
    below: dict[str, list[ActorInfo]] = defaultdict(list)
    for it in actors:
        parts = it.path.split("/")
        for length in range(2, len(parts) + 1):
            below["/".join(parts[:length])].append(it)
    ordered = sorted(actors, key=lambda it: [natural_order(name) for name in it.path.split("/")])
    return [(it, below[it.path]) for it in ordered]


def _is_odd(look: Look, it: ActorInfo) -> bool:
    # A worker that ends is "abandoned" for a moment; one that stays so was there before.
    ending = it.state == "abandoned" and it.path not in look.rates.handled
    return it.restarts > 0 or not (it.state == "running" or ending)


def _row(look: Look, it: ActorInfo, below: Sequence[ActorInfo]) -> PageRow:
    workers = [other for other in below if other.kind == "actor"]
    # By share, not by number: a full mailbox of 4 is worth seeing, 5 in one of 4,096 are not.
    fullest = max(
        workers, key=lambda each: each.mailbox_depth / max(1, each.mailbox_bound), default=it
    )
    handled = look.rates.handled
    known = [handled[each.path] for each in workers if each.path in handled]
    values = (
        it.path.rpartition("/")[2],
        it.state,
        it.term,
        fullest.mailbox_depth,
        fullest.mailbox_bound,
        sum(known) if known else None,
        sum(other.restarts for other in below),
        it.extra.get("last_error", ""),
    )
    return PageRow(
        values, _is_odd(look, it), indent=it.path.count("/") - 1, strong=it.kind != "actor"
    )
