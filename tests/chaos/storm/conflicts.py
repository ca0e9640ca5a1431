"""Broadcasts that conflict take effect in one order, everywhere: a history that has none is found.

Pure. What must come before what, on any vchannel or in time, is a graph; one order for all is there
exactly when it has no cycle. That is more than that any two agree, and is found in linear time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.history import History, Operation, Outcome, Seen

Node = bytes | int
"""A broadcast by its payload, or a moment."""
Before = defaultdict[Node, set[Node]]


def conflicting_broadcasts_agree(history: History) -> Iterator[Violation]:
    """One order explains where all of them lie, and that who ended before another began was first.

    Who shares a key with another, and one of the two exclusively, has a place before or after it.
    """
    asked = {it.payloads[0]: it for it in history.operations if it.sort == "broadcast"}
    before = Before(set)
    for seen in history.final.values():
        _lie_in_order(seen, asked, before)
    _are_in_time(asked.values(), before)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle: Sequence[Node] = error.args[1]
        payloads = tuple(dict.fromkeys(it for it in cycle if isinstance(it, bytes)))
        text = f"each of these must come before the next: {[*payloads, payloads[0]]}"
        yield Violation("broadcast order", text, asked[min(payloads)].targets[0], payloads)


def _lie_in_order(seen: Iterable[Seen], asked: dict[bytes, Operation], before: Before) -> None:
    """Of each key: the exclusive one before, and the shared ones since then."""
    exclusive, shared = defaultdict[object, set[bytes]](set), defaultdict[object, set[bytes]](set)
    for payload in [it.payload for it in seen if it.payload in asked]:
        for key in asked[payload].keys:
            name = key.domain, key.key
            before[payload] |= exclusive[name]
            if key.shared:
                shared[name].add(payload)
            else:
                before[payload] |= shared.pop(name, set())
                exclusive[name] = {payload}


def _are_in_time(asked: Iterable[Operation], before: Before) -> None:
    """By way of moments, of which each comes after the one before it."""
    events = [(it.began_s, 0, it.payloads[0]) for it in asked]
    events += [
        (it.ended_s, 1, it.payloads[0]) for it in asked if it.outcome is Outcome.ACKNOWLEDGED
    ]
    moment = 0
    for _, ends, payload in sorted(events):
        if ends:
            before[moment + 1] |= {moment, payload}
            moment += 1
        else:
            before[payload].add(moment)
