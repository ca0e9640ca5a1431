"""More of what must be true: ids, ticks and terms along a pchannel, and broadcasts everywhere.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.storm.checkers import AT_ONE_TICK, Violation, by_payload
from tests.chaos.storm.history import History, Operation, Outcome, Place, Seen, pchannel_of


def ids_and_terms_grow(history: History) -> Iterator[Violation]:
    """On a pchannel no id is given twice, and a larger id was never written by an older term.

    Nor does it have a smaller tick, but for bodies of transactions, which have that of their end.
    """
    asked = by_payload(history)
    pchannels = defaultdict[str, list[tuple[Seen, str]]](list)
    for vchannel, seen in history.final.items():
        pchannels[pchannel_of(vchannel)] += [(it, vchannel) for it in seen]
    for messages in pchannels.values():
        ordered = sorted(messages, key=lambda it: it[0].id)
        for (one, _), (other, vchannel) in pairwise(ordered):
            if one.id == other.id or one.term > other.term or other.term < 1:
                text = f"{one} comes before {other}"
                yield Violation("id or term", text, vchannel, (one.payload, other.payload))
        alone = [it for it in ordered if not _in_txn(asked, it[0])]
        for (one, _), (other, vchannel) in pairwise(alone):
            if one.tick >= other.tick:
                text = f"{one} comes before {other}"
                yield Violation("tick fell", text, vchannel, (one.payload, other.payload))


def ticks_are_unique(history: History) -> Iterator[Violation]:
    """In the whole cluster; those of one transaction share theirs."""
    asked = by_payload(history)
    first = dict[int, Seen]()
    for vchannel, seen in history.final.items():
        for it in seen:
            one = first.setdefault(it.tick, it)
            same = _in_txn(asked, it) and one.payload in asked[it.payload].payloads
            if one is not it and not same:
                text = f"{one} and {it} have one tick"
                yield Violation("tick twice", text, vchannel, (one.payload, it.payload))


def staged_batches_are_whole(history: History) -> Iterator[Violation]:
    """On all vchannels or on none; on all when that was acknowledged."""
    there = {name: {it.payload for it in seen} for name, seen in history.final.items()}
    batches = defaultdict[str, list[Operation]](list)
    for done in history.operations:
        if done.sort == "staged":
            batches[done.batch].append(done)
    for name, parts in batches.items():
        missing = [it for it in parts if it.payloads[0] not in there[it.targets[0]]]
        acknowledged = parts[0].outcome is Outcome.ACKNOWLEDGED
        if missing and (acknowledged or len(missing) < len(parts)):
            text = f"batch {name} ({parts[0].outcome.value}) is not on {missing[0].targets}"
            payloads = tuple(payload for it in parts for payload in it.payloads)
            yield Violation("half a batch", text, missing[0].targets[0], payloads)


def _in_txn(asked: dict[bytes, Operation], seen: Seen) -> bool:
    return seen.payload in asked and asked[seen.payload].sort in AT_ONE_TICK


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
        told = done.outcome is Outcome.ACKNOWLEDGED and done.places
        if not told or done.sort == "broadcast":
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
