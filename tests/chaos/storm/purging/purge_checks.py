"""A purge removes what it says and nothing else, and nothing that a group still needs. Pure.

Messages of a transaction that is open when a vchannel is purged have later ticks: they stay.
"""

from collections.abc import Iterator
from math import inf

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.history import History
from tests.chaos.storm.purging.purge_history import Look, PurgeHistory

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
            elif vchannel not in part.unread:
                yield from _not_retained(part, look)
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
    for it in part.written:
        if it.tick > reach and it.ended_s < look.began_s and it.payload not in look.found:
            text = f"{it} is lost; no purge was to reach further than {reach}"
            yield Violation("purge lost more", text, look.vchannel, (it.payload,))


def _not_retained(part: PurgeHistory, look: Look) -> Iterator[Violation]:
    acked = _acknowledged(part)
    for it in part.written:
        there = it.ended_s < look.began_s
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
