"""What must be true of a history: each checker finds what contradicts one promise.

Pure. What is documented as weaker is judged as documented: of a broadcast's copies, which may lie
in a log twice, a reader shows the first it comes to. One that resumes behind the first shows the
second, too, so each of its lives is a reading.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import NamedTuple

from tests.chaos.storm.history import History, Operation, Outcome, Place, Reading, Seen

GRACE_S = 5.0
"""A call may end so long after its deadline, on a machine that others use as well."""

AT_ONE_TICK = ("txn", "staged")
WHOLE = (*AT_ONE_TICK, "batch", "rows")
"""What is stored in one piece."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`payloads` are the messages concerned; none when it is about no message.

    `checker`: who has found it, which the judge fills in.
    """

    kind: str
    text: str
    vchannel: str = ""
    payloads: tuple[bytes, ...] = ()
    checker: str = ""


Checker = Callable[[History], Iterator[Violation]]


def by_payload(history: History) -> dict[bytes, Operation]:
    return {payload: it for it in history.operations for payload in it.payloads}


def acknowledged_are_stored(history: History) -> Iterator[Violation]:
    """Where and when the answer said; of a broadcast, on each of its vchannels."""
    stored = {name: {it.payload: it for it in seen} for name, seen in history.final.items()}
    for done in history.operations:
        if done.outcome is not Outcome.ACKNOWLEDGED:
            continue
        for payload, place in acknowledged_places(done):
            found = stored.get(place.vchannel, {}).get(payload)
            text = f"{done.sort} {payload!r} was acknowledged at {place}"
            if found is None:
                yield Violation("lost", f"{text} and is not there", place.vchannel, (payload,))
            elif done.sort != "broadcast" and (found.id, found.tick) != (place.id, place.tick):
                yield Violation("moved", f"{text} and lies at {found}", place.vchannel, (payload,))


def acknowledged_places(done: Operation) -> Iterator[tuple[bytes, Place]]:
    """Each message with its place. A broadcast has one payload, and a place on each vchannel."""
    payloads = done.payloads if done.places else ()
    if done.sort == "broadcast":
        assert {it.vchannel for it in done.places} == {*done.targets}
        payloads *= len(done.places)
    yield from zip(payloads, done.places, strict=True)


def nothing_comes_twice(history: History) -> Iterator[Violation]:
    """For no reader; a client numbers what it sends again, so not in the log either."""
    for who, vchannel, seen in history.sequences():
        for payload, times in Counter(it.payload for it in seen).items():
            if times > 1:
                places = [(it.id, it.tick) for it in seen if it.payload == payload]
                text = f"{who} got {payload!r} {times} times: {places}"
                yield Violation("twice", text, vchannel, (payload,))


def absent_are_absent(history: History) -> Iterator[Violation]:
    """What was refused, rolled back or expired is seen by nobody; nor what nobody sent."""
    asked = by_payload(history)
    for who, vchannel, seen in history.sequences():
        for it in seen:
            done = asked.get(it.payload)
            if done is None or vchannel not in done.targets:
                yield Violation("unasked", f"{who} got {it}", vchannel, (it.payload,))
            elif done.outcome is Outcome.ABSENT:
                text = f"{who} got {it} though: {done.sort}, {done.error or 'rolled back'}"
                yield Violation("not absent", text, vchannel, done.payloads)


def transactions_are_whole(history: History) -> Iterator[Violation]:
    """Each one, and each batch, in one piece, in its order; a transaction at one tick.

    That a batch is all there is seen where it was acknowledged.
    """
    whole = {it.payloads[0]: it for it in history.operations if it.sort in WHOLE}
    parts = {payload: it for it in whole.values() for payload in it.payloads}
    for who, vchannel, seen in history.sequences():
        found = dict[bytes, list[tuple[int, Seen]]]()
        for index, it in enumerate(seen):
            if it.payload in parts:
                found.setdefault(parts[it.payload].payloads[0], []).append((index, it))
        for first, pieces in found.items():
            done = whole[first]
            if not _is_whole(done, pieces, len(seen)):
                text = f"{who} got of {done.sort} {done.payloads}: {pieces}"
                yield Violation("not whole", text, vchannel, done.payloads)


def _is_whole(done: Operation, pieces: list[tuple[int, Seen]], count: int) -> bool:
    """A batch is stored whole; a reader may begin or leave in the midst of it."""
    (first, _), (last, _) = pieces[0], pieces[-1]
    payloads = tuple(it.payload for _, it in pieces)
    if last - first != len(pieces) - 1:
        return False
    if done.sort in AT_ONE_TICK:
        return payloads == done.payloads and len({it.tick for _, it in pieces}) == 1
    begins = done.payloads.index(payloads[0])
    complete = (begins == 0 or first == 0) and (
        begins + len(pieces) == len(done.payloads) or last == count - 1
    )
    return complete and payloads == done.payloads[begins : begins + len(pieces)]


def readers_saw_the_log(history: History) -> Iterator[Violation]:
    """From where each began, as far as it came, the very sequence that is there in the end."""
    sorts = {payload: it.sort for payload, it in by_payload(history).items()}
    broadcasts = {payload for payload, sort in sorts.items() if sort == "broadcast"}
    for reading in history.readings:
        if reading.error:
            yield Violation("reader ended", f"{reading.name}: {reading.error}", reading.vchannel)
        wanted, seen = _wanted(history, reading, broadcasts), reading.seen
        if reading.only:
            # On a vchannel of rows, those of transactions and staged batches are rows as well.
            as_rows = (reading.only, *AT_ONE_TICK)
            wanted = [it for it in wanted if sorts.get(it.payload) in as_rows]
        if reading.until_tick:
            wanted = [it for it in wanted if it.tick <= reading.until_tick]
        if reading.bare:
            wanted = [it._replace(term=0) for it in wanted]
        if reading.after_tick != 0:  # the copy that counts may lie before its begin
            known = set(wanted)
            seen = [it for it in seen if it in known or it.payload not in broadcasts]
        pairs = zip_longest(seen, wanted if reading.to_the_end else wanted[: len(seen)])
        differs = next((at for at, (got, there) in enumerate(pairs) if got != there), None)
        if differs is not None:
            got, there = seen[differs : differs + 1], wanted[differs : differs + 1]
            text = f"reader {reading.name}, message {differs}: got {got}, {there} is there"
            concerned = tuple(it.payload for it in (*got, *there))
            yield Violation("reader differs", text, reading.vchannel, concerned)


def _wanted(history: History, reading: Reading, broadcasts: set[bytes]) -> list[Seen]:
    final = history.final[reading.vchannel]
    if reading.after_tick is not None:
        return [it for it in final if it.tick > reading.after_tick]
    known = set(final)
    first = next((it for it in reading.seen if it in known or it.payload not in broadcasts), None)
    after = [
        place.tick
        for done in history.operations
        if done.outcome is Outcome.ACKNOWLEDGED and done.began_s > reading.opened_s
        for place in done.places
        if place.vchannel == reading.vchannel and done.sort != "broadcast"
    ]
    from_tick = min([*after, *([first.tick] if first else [])], default=None)
    return [] if from_tick is None else [it for it in final if it.tick >= from_tick]


def closed_ticks_stay_closed(history: History) -> Iterator[Violation]:
    for reading in history.readings:
        for index, tick in reading.closed:
            late = next((it for it in reading.seen[index : index + 1] if it.tick <= tick), None)
            if late is not None:
                text = f"reader {reading.name}: {tick} was closed, then came {late}"
                yield Violation("tick reopened", text, reading.vchannel, (late.payload,))


def cuts_divide(history: History) -> Iterator[Violation]:
    """What was acknowledged before a cut is inside, what began after it is not.

    Not of broadcasts: the answer may tell where the second of two copies is.
    """
    ended, began = dict[str, list[Timed]](), dict[str, list[Timed]]()
    for done in history.operations:
        if done.outcome is Outcome.ACKNOWLEDGED and done.sort != "broadcast":
            for payload, place in acknowledged_places(done):
                name = place.vchannel
                ended.setdefault(name, []).append(Timed(done.ended_s, place.tick, payload))
                began.setdefault(name, []).append(Timed(-done.began_s, -place.tick, payload))
    largest = {name: _newest(found) for name, found in ended.items()}
    smallest = {name: _newest(found) for name, found in began.items()}
    for cut in history.cuts:
        for name in cut.vchannels:
            inside = _before(largest.get(name, []), cut.began_s)
            outside = _before(smallest.get(name, []), -cut.ended_s)
            if inside is not None and inside.tick > cut.tick:
                yield Violation("cut", f"{cut} leaves {inside} out", name, (inside.payload,))
            if outside is not None and -outside.tick <= cut.tick:
                yield Violation("cut", f"{cut} holds {outside}", name, (outside.payload,))


class Timed(NamedTuple):
    """A message and when it was asked for, or acknowledged."""

    at_s: float
    tick: int
    payload: bytes


def _newest(found: list[Timed]) -> list[Timed]:
    """For each time the largest tick until then."""
    return list(accumulate(sorted(found), lambda a, b: Timed(b.at_s, *max(a[1:], b[1:]))))


def _before(newest: list[Timed], at_s: float) -> Timed | None:
    index = bisect_left(newest, at_s, key=lambda it: it.at_s)
    return newest[index - 1] if index else None


def calls_end_in_time(history: History) -> Iterator[Violation]:
    grace_s = GRACE_S + history.stall_s
    for call in history.calls:
        took_s = None if call.ended_s is None else call.ended_s - call.began_s
        if took_s is None or took_s > call.deadline_s + grace_s:
            told = "never ended" if took_s is None else f"took {took_s:.1f} s"
            text = f"{call.sort} with a deadline of {call.deadline_s} s {told}"
            yield Violation("late", text)


def ticks_grow(history: History) -> Iterator[Violation]:
    """A reader gets ticks in order; two messages share one only inside of a transaction."""
    asked = by_payload(history)
    for who, vchannel, seen in history.sequences():
        for one, other in pairwise(seen):
            done = asked.get(one.payload)
            same = done is not None and done.sort in AT_ONE_TICK and other.payload in done.payloads
            if one.tick > other.tick or (one.tick == other.tick and not same):
                text = f"{who} got {one}, then {other}"
                yield Violation("order", text, vchannel, (one.payload, other.payload))
