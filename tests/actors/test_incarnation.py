"""One life seen from outside."""

import asyncio

from actors import ActorDied, Exit, ExitKind, MailboxSpec, StaleTerm
from actors.envelope import Failure
from actors.incarnation import Incarnation
from actors.testing import VirtualClock


def incarnation(newest: int = 1) -> Incarnation:
    return Incarnation("/a", 1, MailboxSpec(), VirtualClock(), lambda: newest)


async def test_the_first_reason_to_die_stays() -> None:
    life = incarnation()
    life.die(Exit(ExitKind.CRASHED))
    life.die(Exit(ExitKind.KILLED))
    assert life.exit == Exit(ExitKind.CRASHED)


async def test_all_who_still_wait_are_answered_in_their_order() -> None:
    life = incarnation()
    promises = [asyncio.get_running_loop().create_future() for _ in range(3)]
    life.promises.update(dict.fromkeys(promises))
    promises[1].set_result("answered already")
    life.die(Exit(ExitKind.KILLED))
    answers = [await promise for promise in promises]
    assert [isinstance(answer, Failure) for answer in answers] == [True, False, True]
    assert life.promises == {}


def test_who_comes_late_is_told_of_a_newer_term_or_else_of_the_death() -> None:
    for newest, error in ((1, ActorDied), (2, StaleTerm)):
        life = incarnation(newest)
        life.die(Exit(ExitKind.KILLED))
        assert type(life.refusal()) is error
