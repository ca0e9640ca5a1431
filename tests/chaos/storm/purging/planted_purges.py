"""What is wrong with purges, for the tests of checkers."""

from collections.abc import Callable

from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.history import History
from tests.chaos.storm.purging.purge_history import Look, Purged, PurgeHistory, Settled, Written

AT, RETAINED = "p_2_9v2", "p_3_9v3"


def good_purges() -> PurgeHistory:
    """Two messages purged, two left, one that may be either; purges refused and unknown."""
    return PurgeHistory(
        [
            *(Written(AT, b"%d" % it, 10 * it, 0.5) for it in range(1, 6)),
            Written(RETAINED, b"old", 10, 0.5),
            Written(RETAINED, b"needed", 20, 0.6),
        ],
        [
            Purged(AT, 50, 1.0, 1.5, Told.REFUSED),
            Purged(AT, 20, 4.0, 5.0, Told.DONE),
            Purged(AT, 30, 6.0, 7.0, Told.OPEN),
        ],
        [
            Settled(AT, 2.0, frozenset([b"1", b"2"])),
            Settled(AT, 5.5, frozenset([b"3"])),
            Settled(AT, 8.0, frozenset([b"4"])),
            Settled(RETAINED, 2.0, frozenset([b"old"])),
            Settled(RETAINED, 9.0, frozenset([b"needed"])),
        ],
        [
            Look(AT, 4.5, 4.8, {b"2": 20, b"3": 30, b"4": 40, b"5": 50}),
            Look(AT, 9.0, 10.0, {b"4": 40, b"5": 50}),
            Look(RETAINED, 7.0, 8.0, {b"needed": 20}),
            Look(RETAINED, 10.0, 11.0, {}),
            # A purge overtook them while their streams were broken.
            Look(AT, 3.0, 4.6, {b"1": 10}, overtaken=20, read_to=10),
            Look(RETAINED, 1.0, 3.0, {}, overtaken=10),
        ],
        retained={RETAINED},
    )


def lose_one(history: History) -> None:
    del history.purges.looks[1].found[b"5"]


def leave_one(history: History) -> None:
    history.purges.looks[1].found[b"2"] = 20


def tear_the_log(history: History) -> None:
    looks = history.purges.looks
    looks[0] = looks[0]._replace(torn="a begin is missing")


def acknowledge_behind_the_purge(history: History) -> None:
    settled = history.purges.settled
    settled[0] = settled[0]._replace(began_s=5.25)


def acknowledge_never(history: History) -> None:
    settled = history.purges.settled
    settled[0] = settled[0]._replace(payloads=frozenset([b"1"]))


def retain_too_little(history: History) -> None:
    history.purges.looks[2].found.clear()


def tell_who_has_all(history: History) -> None:
    looks = history.purges.looks
    looks[4] = looks[4]._replace(found={b"1": 10, b"2": 20}, read_to=20)


def tell_who_came_later(history: History) -> None:
    looks = history.purges.looks
    looks[4] = looks[4]._replace(began_s=5.1, ended_s=5.8)


def overtake_and_lose(history: History) -> None:
    history.purges.looks[4] = Look(AT, 9.0, 10.0, {b"5": 50}, overtaken=60, read_to=50)


def retain_nothing_for_the_overtaken(history: History) -> None:
    looks = history.purges.looks
    looks[5] = looks[5]._replace(overtaken=20)


PLANTED_PURGES: list[tuple[Callable[[History], None], str]] = [
    (lose_one, "purge lost more"),
    (leave_one, "purge left out"),
    (tear_the_log, "purge tore the log"),
    (acknowledge_behind_the_purge, "purge of what was held"),
    (acknowledge_never, "purge of what was held"),
    (retain_too_little, "purge by retention of what was held"),
    (tell_who_has_all, "purge told to a reader that misses nothing"),
    (tell_who_came_later, "purge told to a reader behind it"),
    (overtake_and_lose, "purge lost more"),
    (retain_nothing_for_the_overtaken, "purge by retention of what was held"),
]
