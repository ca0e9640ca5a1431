"""What is wrong with groups, for the tests of checkers."""

from collections.abc import Callable
from dataclasses import replace

from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.groups.group_history import (
    ORDERED,
    Acked,
    GroupHistory,
    OnVChannel,
    Reset,
    Taken,
)
from tests.chaos.storm.history import History


def good_groups(history: History, vchannel: str) -> GroupHistory:
    """One that two members shared; one that began anew, and lost answers."""
    shared, anew = OnVChannel("shared", vchannel), OnVChannel("anew", vchannel)
    ordered = OnVChannel(ORDERED, vchannel)
    messages = {it.id: it.payload for it in history.final[vchannel]}
    first, *others = messages
    rest = {id: messages[id] for id in others}
    return GroupHistory(
        [
            Taken(shared, "ann", 1.0, 2.0, messages),
            Taken(shared, "bob", 1.0, 5.0, rest),
            Taken(anew, "cid", 1.0, 2.0, messages),
            Taken(anew, "cid", 6.0, 7.0, messages),
            Taken(anew, "dan", 9.0, 9.5, rest),
            Taken(ordered, "fay", 1.0, 2.0, {first: messages[first]}, {first: b"k"}),
            Taken(ordered, "gus", 1.0, 2.5, rest, {others[0]: b"k", others[1]: b"k"}),
        ],
        [
            Acked(shared, "ann", 2.0, 3.0, Told.DONE, frozenset([first])),
            Acked(shared, "ann", 2.0, 6.0, Told.REFUSED, frozenset(rest)),
            Acked(shared, "bob", 5.0, 6.0, Told.DONE, frozenset(rest)),
            Acked(anew, "cid", 2.0, 3.0, Told.DONE, frozenset(messages)),
            Acked(anew, "cid", 7.0, 8.0, Told.OPEN, frozenset(messages)),
            Acked(anew, "dan", 9.5, 10.0, Told.DONE, frozenset(rest)),
            Acked(ordered, "fay", 2.1, 3.0, Told.DONE, frozenset([first])),
        ],
        [
            Reset(anew, "sought", 4.0, 5.0, Told.DONE),
            Reset(anew, "sought", 11.0, 12.0, Told.OPEN),
        ],
        [shared, anew],
    )


def acknowledge_late(history: History) -> None:
    acks = history.groups.acked
    acks[1] = replace(acks[1], told=Told.DONE)


def seek_nothing(history: History) -> None:
    reset = history.groups.resets[0]
    history.groups.resets[0] = replace(reset, told=Told.REFUSED)


def deliver_again(history: History) -> None:
    taken = history.groups.taken
    taken.append(replace(taken[0], member="eve", joined_s=7.0, taken_s=8.0))


def deliver_what_nobody_sent(history: History) -> None:
    taken = history.groups.taken
    taken[1] = replace(taken[1], messages={99: b"nobody's"})


def leave_one_out(history: History) -> None:
    acks = history.groups.acked
    acks[0] = replace(acks[0], told=Told.REFUSED)


def forget_what_came_before_the_reset(history: History) -> None:
    acks = history.groups.acked
    acks[4] = replace(acks[4], told=Told.REFUSED)


def give_a_key_to_two(history: History) -> None:
    taken = history.groups.taken
    taken[-1] = replace(taken[-1], taken_s=2.05)


def settle_nothing_before(history: History) -> None:
    acks = history.groups.acked
    acks[-1] = replace(acks[-1], told=Told.REFUSED)


PLANTED_GROUPS: list[tuple[Callable[[History], None], str]] = [
    (acknowledge_late, "group acknowledged twice"),
    (seek_nothing, "group comes again"),
    (deliver_again, "group comes again"),
    (deliver_what_nobody_sent, "group got more"),
    (leave_one_out, "group left out"),
    (give_a_key_to_two, "group key at two places"),
    (settle_nothing_before, "group key at two places"),
    (forget_what_came_before_the_reset, "group left out"),
]
