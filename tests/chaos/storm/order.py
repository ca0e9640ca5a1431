"""More of what must be true: ids and terms along a pchannel, and broadcasts over all of them.

Pure. Next: tests/chaos/storm/judge.py
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise

from tests.chaos.storm.checkers import Violation, by_payload
from tests.chaos.storm.history import History, Operation, Outcome, Place, Seen, pchannel_of


def ids_and_terms_grow(history: History) -> Iterator[Violation]:
    """On a pchannel no id is given twice, and a larger id was never written by an older term."""
    pchannels = defaultdict[str, list[tuple[Seen, str]]](list)
    for vchannel, seen in history.final.items():
        pchannels[pchannel_of(vchannel)] += [(it, vchannel) for it in seen]
    for messages in pchannels.values():
        ordered = sorted(messages, key=lambda it: it[0].id)
        for (one, _), (other, vchannel) in pairwise(ordered):
            if one.id == other.id or one.term > other.term or other.term < 1:
                text = f"{one} comes before {other}"
                yield Violation("id or term", text, vchannel, (one.payload, other.payload))


def a_term_has_one_owner(history: History) -> Iterator[Violation]:
    """Whenever one asked, of each term the same node, and no smaller term than before."""
    owner, newest = dict[tuple[str, int], int](), dict[str, int]()
    for it in history.owned:
        node = owner.setdefault((it.pchannel, it.term), it.node_id)
        if node != it.node_id:
            yield Violation("two owners", f"node {node} had the term of {it}")
        if it.term < newest.get(it.pchannel, 0):
            yield Violation("term fell", f"{it} after term {newest[it.pchannel]}")
        newest[it.pchannel] = max(it.term, newest.get(it.pchannel, 0))


def later_is_later(history: History) -> Iterator[Violation]:
    """What began after another was acknowledged has the larger id and tick on their pchannel.

    Not of broadcasts: the answer may tell where the second of two copies is.
    """
    events = defaultdict[str, list[tuple[float, int, Place, bytes]]](list)
    for done in history.operations:
        if done.outcome is not Outcome.ACKNOWLEDGED or done.sort == "broadcast":
            continue
        first, last = (done.end, done.end) if done.end else (done.places[0], done.places[-1])
        name = pchannel_of(first.vchannel)
        events[name].append((done.began_s, 1, first, done.payloads[0]))
        events[name].append((done.ended_s, 0, last, done.payloads[-1]))
    for found in events.values():
        newest: tuple[Place, bytes] | None = None
        for _, begins, place, payload in sorted(found, key=lambda it: (it[0], it[1])):
            if not begins:
                if newest is None or place.id > newest[0].id:
                    newest = place, payload
            elif newest is not None and not (
                place.id > newest[0].id and place.tick > newest[0].tick
            ):
                text = f"{payload!r} at {place} began after {newest[1]!r} at {newest[0]} ended"
                yield Violation("order in time", text, place.vchannel, (payload, newest[1]))


def broadcasts_are_everywhere(history: History) -> Iterator[Violation]:
    """On all of its vchannels or on none."""
    there = {name: {it.payload for it in seen} for name, seen in history.final.items()}
    for done in history.operations:
        if done.sort != "broadcast":
            continue
        missing = [it for it in done.targets if done.payloads[0] not in there[it]]
        if missing and len(missing) < len(done.targets):
            text = f"broadcast {done.payloads[0]!r} is not on {missing}"
            yield Violation("not everywhere", text, missing[0], done.payloads)


def conflicting_broadcasts_agree(history: History) -> Iterator[Violation]:
    """Two that share a key lie in one order on every vchannel they have in common.

    That order is the order in time where one was acknowledged before the other was asked for.
    """
    asked = by_payload(history)
    places = {
        name: {
            it.payload: at for at, it in enumerate(seen) if asked[it.payload].sort == "broadcast"
        }
        for name, seen in history.final.items()
    }
    for one, other in combinations([it for it in history.operations if it.sort == "broadcast"], 2):
        common = sorted(set(one.targets) & set(other.targets))
        if not common or not one.conflicts_with(other):
            continue
        first, second = one.payloads[0], other.payloads[0]
        orders = {
            places[name][first] < places[name][second]
            for name in common
            if first in places[name] and second in places[name]
        }
        wrong = (_before(one, other) and False in orders) or (
            _before(other, one) and True in orders
        )
        if len(orders) > 1 or wrong:
            text = (
                f"{first!r} and {second!r} share a key; first before second on {common}: {orders}"
            )
            yield Violation("broadcast order", text, common[0], (first, second))


def _before(one: Operation, other: Operation) -> bool:
    return one.outcome is Outcome.ACKNOWLEDGED and one.ended_s < other.began_s
