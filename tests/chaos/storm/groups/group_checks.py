"""What groups promise, judged by what their members took and were told.

A member may get late what was leased to it long ago, so an early taking proves nothing. What proves
something: two acknowledgements of one message, a taking by a member that joined behind an
acknowledgement, and what nobody ever acknowledged once a group has nothing left.

Pure.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.groups.group_history import Acked, GroupHistory, OnVChannel, Reset
from tests.chaos.storm.history import History, Seen

GROUP = "group "
"""How the kinds of these violations begin."""


def groups_agree(history: History) -> Iterator[Violation]:
    """What is unacknowledged comes until it is acknowledged; what is acknowledged never again."""
    groups = history.groups
    for at in sorted({it.at for it in groups.taken} | {*groups.drained}):
        part, final = groups.of(at), history.final.get(at.vchannel, [])
        done = _done(part)
        yield from _acknowledged_twice(at, part, done, final)
        yield from _comes_again(at, part, done)
        yield from _not_stored(at, part, final)
        if part.drained:
            yield from _left_out(at, part, final)


def _done(part: GroupHistory) -> dict[int, list[Acked]]:
    """The acknowledgements of each message that were done, in the order of their answers."""
    done: dict[int, list[Acked]] = {}
    for ack in sorted(part.acked, key=lambda it: it.ended_s):
        if ack.told is Told.DONE:
            for id in ack.ids:
                done.setdefault(id, []).append(ack)
    return done


def _acknowledged_twice(
    at: OnVChannel, part: GroupHistory, done: dict[int, list[Acked]], final: list[Seen]
) -> Iterator[Violation]:
    payloads = {it.id: it.payload for it in final}
    for id, acks in done.items():
        for one, other in pairwise(acks):
            if not _reset_between(part.resets, one.began_s, other.ended_s):
                text = f"{at.group}: message {id} by {one.member}, then by {other.member}"
                payload = payloads.get(id, b"")
                yield Violation("group acknowledged twice", text, at.vchannel, (payload,))


def _comes_again(
    at: OnVChannel, part: GroupHistory, done: dict[int, list[Acked]]
) -> Iterator[Violation]:
    for taken in part.taken:
        for id, payload in taken.messages.items():
            for ack in done.get(id, ()):
                if taken.joined_s < ack.ended_s:
                    break
                if not _reset_between(part.resets, ack.began_s, taken.taken_s):
                    text = f"{at.group}: {taken.member} got message {id}, acknowledged before"
                    yield Violation("group comes again", text, at.vchannel, (payload,))
                    break


def _not_stored(at: OnVChannel, part: GroupHistory, final: list[Seen]) -> Iterator[Violation]:
    stored = {it.payload for it in final}
    for taken in part.taken:
        for id, payload in taken.messages.items():
            if payload not in stored:
                text = f"{at.group}: {taken.member} got message {id}, which is not in the log"
                yield Violation("group got more", text, at.vchannel, (payload,))


def _left_out(at: OnVChannel, part: GroupHistory, final: list[Seen]) -> Iterator[Violation]:
    # One whose outcome nobody knows may have changed nothing: what was acknowledged before counts.
    anew_s = max([it.began_s for it in part.resets if it.told is Told.DONE], default=0.0)
    acked = {
        id
        for it in part.acked
        if it.told is not Told.REFUSED and it.ended_s >= anew_s
        for id in it.ids
    }
    for seen in final:
        if seen.id not in acked:
            text = f"{at.group} has nothing left, and nobody acknowledged {seen}"
            yield Violation("group left out", text, at.vchannel, (seen.payload,))


def _reset_between(resets: list[Reset], after_s: float, before_s: float) -> bool:
    """Whether the group may have begun anew then."""
    return any(
        it.told is not Told.REFUSED and it.ended_s > after_s and it.began_s < before_s
        for it in resets
    )


def part_of(history: History, violation: Violation) -> History:
    """What shows this violation, and little else."""
    vchannel = violation.vchannel
    payloads = {*violation.payloads}
    ids = {
        id
        for it in history.groups.taken
        if it.at.vchannel == vchannel
        for id, payload in it.messages.items()
        if payload in payloads
    }
    final = [it for it in history.final.get(vchannel, []) if it.payload in payloads]
    ids |= {it.id for it in final}
    return History(final={vchannel: final}, groups=history.groups.only(vchannel, ids))
