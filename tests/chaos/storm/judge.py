"""All checkers over a history, and the smallest part of it that still shows what is wrong.

Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from tests.chaos.storm import agreement, checkers, conflicts, order, segments
from tests.chaos.storm.checkers import Checker, Violation
from tests.chaos.storm.ddl_history import DdlHistory
from tests.chaos.storm.groups.group_checks import GROUP, groups_agree, part_of
from tests.chaos.storm.groups.group_history import GroupHistory
from tests.chaos.storm.groups.order_checks import keys_have_one_owner
from tests.chaos.storm.history import History, Reading
from tests.chaos.storm.purging.purge_checks import PURGE, purges_agree, purges_of
from tests.chaos.storm.purging.purge_history import PurgeHistory

CHECKERS: tuple[Checker, ...] = (
    checkers.acknowledged_are_stored,
    checkers.nothing_comes_twice,
    checkers.absent_are_absent,
    checkers.transactions_are_whole,
    checkers.readers_saw_the_log,
    checkers.closed_ticks_stay_closed,
    checkers.cuts_divide,
    checkers.calls_end_in_time,
    checkers.ticks_grow,
    order.ids_and_terms_grow,
    order.ticks_are_unique,
    order.a_term_has_one_owner,
    order.later_is_later,
    order.broadcasts_are_everywhere,
    order.staged_batches_are_whole,
    conflicts.conflicting_broadcasts_agree,
    agreement.ddl_agrees,
    segments.rows_are_in_their_segment,
    segments.segments_end_once,
    segments.the_master_counts_the_rows,
    groups_agree,
    keys_have_one_owner,
    purges_agree,
)
TRIES_MAX = 400


def judge(history: History) -> list[Violation]:
    """Everything that is wrong with it."""
    return [
        replace(violation, checker=checker.__name__)
        for checker in CHECKERS
        for violation in checker(history)
    ]


def shortest(history: History, violation: Violation) -> History:
    """As little of the history as can be found that has a violation of this kind on its vchannel.

    What is about no message comes with the calls that were late and the owners only.
    """

    def shows(candidate: History) -> bool:
        return any(
            it.kind == violation.kind and it.vchannel == violation.vchannel
            for it in judge(candidate)
        )

    if violation.kind.startswith(agreement.DEFINITION):
        names = {it.decode() for it in violation.payloads}
        return History(ddl=history.ddl.only(names) if names else history.ddl)
    if violation.kind.startswith(GROUP):
        return part_of(history, violation)
    if violation.kind.startswith(PURGE):
        return purges_of(history, violation)
    history = replace(history, ddl=DdlHistory(), groups=GroupHistory(), purges=PurgeHistory())
    if not violation.vchannel:
        late = [it for it in history.calls if judge(History(calls=[it], stall_s=history.stall_s))]
        return History(calls=late, owned=history.owned, stall_s=history.stall_s)
    on_it = [it for it in history.readings if it.vchannel == violation.vchannel]
    cuts = [it for it in history.cuts if violation.kind == "cut"]
    history = replace(history, readings=on_it, calls=[], owned=[], cuts=cuts)
    few = only(history, {*violation.payloads})
    if shows(few):
        history = few
    history = _fewer_readers(history, shows)
    return _fewer_messages(history, shows)


def only(history: History, payloads: Collection[bytes]) -> History:
    """The part of it that these messages have."""
    return replace(
        history,
        operations=[it for it in history.operations if not {*it.payloads}.isdisjoint(payloads)],
        readings=[_only_seen(it, payloads) for it in history.readings],
        final={
            name: [m for m in seen if m.payload in payloads] for name, seen in history.final.items()
        },
    )


def _only_seen(reading: Reading, payloads: Collection[bytes]) -> Reading:
    kept = [it.payload in payloads for it in reading.seen]
    before = [0, *accumulate(kept)]
    closed = [(before[min(index, len(kept))], tick) for index, tick in reading.closed]
    seen = [it for it, stays in zip(reading.seen, kept, strict=True) if stays]
    return replace(reading, seen=seen, closed=closed)


def _fewer_readers(history: History, shows: Callable[[History], bool]) -> History:
    for readings in ([], *([it] for it in history.readings)):
        candidate = replace(history, readings=readings)
        if shows(candidate):
            return candidate
    return history


def _fewer_messages(history: History, shows: Callable[[History], bool]) -> History:
    """Halves, quarters and so on are left out as long as it still shows."""
    kept = sorted({payload for it in history.operations for payload in it.payloads})
    size, tries = len(kept) // 2, 0
    while size and tries < TRIES_MAX:
        begin = 0
        while begin < len(kept) and tries < TRIES_MAX:
            tries += 1
            fewer = [*kept[:begin], *kept[begin + size :]]
            candidate = only(history, {*fewer})
            if fewer and shows(candidate):
                kept, history = fewer, candidate
            else:
                begin += size
        size //= 2
    return history


def told(history: History) -> Sequence[str]:
    """A history line by line, in the order of time; for one that is short."""
    lines = [
        f"{it.began_s:9.3f} {it.ended_s:9.3f} {it.sort} {it.outcome.value} {it.payloads}"
        f" {it.places} {it.error}"
        for it in sorted(history.operations, key=lambda it: it.began_s)
    ]
    lines += [str(it) for it in (*history.calls[:20], *history.owned[:200])]
    lines += [str(it) for it in (*history.segments[:100], *history.listed[:100])]
    lines += [f"cut {it}" for it in history.cuts[:20]]
    lines += [
        f"reader {it.name} of {it.vchannel}: {it.error}" for it in history.readings if it.error
    ]
    lines += [f"{who} of {name}: {seen}" for who, name, seen in history.sequences() if seen]
    lines += history.purges.lines()
    return [*lines, *history.ddl.lines(), *history.groups.lines()]
