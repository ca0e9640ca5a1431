"""A purge removes what it says and nothing else, and nothing that a group still needs. Pure.

Messages of a transaction that is open when a vchannel is purged have later ticks: they stay.

A reader whose stream broke holds nothing until it has the next one, so a purge may overtake it. It
must be told then, and only then: with something between what it has read and the end of the purge,
and by no purge that was over before it began.
"""

from collections.abc import Iterator, Sequence
from math import inf

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.history import History
from tests.chaos.storm.purging.purge_history import Look, PurgeHistory, Tried, Written

LANDS_S = 60.0
"""What nobody has an answer for is stored within this time, or never."""
PURGE = "purge "
"""How the kinds of these violations begin."""


def purges_agree(history: History) -> Iterator[Violation]:
    """What is not purged is there; what is purged is gone, and a group had acknowledged it."""
    for vchannel in sorted({it.vchannel for it in history.purges.looks}):
        part = history.purges.of(vchannel)
        for look in part.looks:
            if look.torn:
                yield Violation("purge tore the log", look.torn, vchannel)
            elif vchannel not in part.retained:
                yield from _found_more(part, look)
                yield from _found_less(part, look)
                yield from _overtaken_by_none(part, look)
            elif vchannel not in part.unread:
                yield from _not_retained(part, look)
            if look.overtaken:
                yield from _overtaken_for_nothing(part, look)
        if vchannel not in part.unread:
            yield from _taken_away(part)


def _found_more(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    done = [it for it in part.purged if it.told is Told.DONE and it.ended_s <= look.began_s]
    gone = max([it.upto for it in done], default=0)
    for payload, tick in look.found.items():
        if tick <= gone:
            text = f"purged up to {gone}, and {payload!r} at {tick} is still read"
            yield Violation("purge left out", text, look.vchannel, (payload,))


def _found_less(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    # One whose outcome nobody knows may have removed what it was to remove.
    may = [it for it in part.purged if it.told is not Told.REFUSED and it.began_s < look.ended_s]
    reach = max([it.upto for it in may], default=0)
    for it in _read_through(part, look):
        if it.tick > reach and it.ended_s < look.began_s and it.payload not in look.found:
            text = f"{it} is lost; no purge was to reach further than {reach}"
            yield Violation("purge lost more", text, look.vchannel, (it.payload,))


def _read_through(part: PurgeHistory, look: Look) -> list[Written]:
    """What it has been given, unless it is gone: all, or what lies below its newest message."""
    # A transaction has one tick, and may have been given in part.
    return [it for it in part.written if not look.overtaken or it.tick < look.read_to]


def _overtaken_by_none(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    """No purge was under way that can have overtaken it."""
    under_way = [
        it
        for it in part.purged
        if it.told is not Told.REFUSED
        and it.upto >= look.overtaken
        and it.began_s < look.ended_s
        # One whose outcome nobody knows may come at any time.
        and (it.ended_s > look.began_s or it.told is Told.OPEN)
    ]
    if look.overtaken and not under_way:
        text = f"told of a purge up to {look.overtaken}, and none was under way while it read"
        yield Violation("purge told to a reader behind it", text, look.vchannel)


def _overtaken_for_nothing(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    """It had everything that the purge took."""
    newest, upto = look.read_to, look.overtaken
    missed = [it for it in part.written if newest <= it.tick <= upto]
    if all(it.payload in look.found for it in missed) and not any(
        _may_lie(it, part.written, newest, upto) for it in part.tried if it.began_s < look.ended_s
    ):
        text = f"it had read up to {newest}, and nothing lies between there and {upto}"
        yield Violation("purge told to a reader that misses nothing", text, look.vchannel)


def _may_lie(tried: Tried, written: Sequence[Written], above: int, upto: int) -> bool:
    """Whether it may have a tick in between."""
    # Who begins behind an answer gets a larger tick; a transaction gets that of its commit.
    too_late = any(it.tick >= upto and it.ended_s <= tried.began_s for it in written)
    too_early = any(it.tick <= above and it.ended_s > tried.ended_s + LANDS_S for it in written)
    return not too_late and not too_early


def _not_retained(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    acked = _acknowledged(part)
    upto = look.overtaken or inf
    for it in part.written:
        there = it.ended_s < look.began_s and it.tick <= upto
        if there and it.payload not in look.found and acked.get(it.payload, inf) > look.ended_s:
            text = f"{it} is gone before its group acknowledged it"
            yield Violation("purge by retention of what was held", text, it.vchannel, (it.payload,))


def _acknowledged(part: PurgeHistory) -> dict[bytes, float]:
    """When a member first asked to have a message acknowledged."""
    acked: dict[bytes, float] = {}
    for settled in part.settled:
        for payload in settled.payloads:
            acked[payload] = min(settled.began_s, acked.get(payload, inf))
    return acked


def _taken_away(part: PurgeHistory) -> Iterator[Violation]:
    acked = _acknowledged(part)
    done = [it for it in part.purged if it.told is Told.DONE]
    for it in part.written:
        gone_s = min([purge.ended_s for purge in done if purge.upto >= it.tick], default=inf)
        if acked.get(it.payload, inf) > gone_s:
            text = f"{it} was purged before its group acknowledged it"
            yield Violation("purge of what was held", text, it.vchannel, (it.payload,))


def purges_of(history: History, violation: Violation) -> History:
    """What shows this violation, and little else."""
    part = history.purges.of(violation.vchannel)
    return History(purges=part.only(violation.payloads) if violation.payloads else part)
