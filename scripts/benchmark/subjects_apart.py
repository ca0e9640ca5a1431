"""Lists what is measured on brokers of its own, or without one, after all other subjects."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmark import names
from benchmark.measures.embedded import EmbeddedQueues
from benchmark.measures.given_back import GivenBack
from benchmark.measures.master.allocations import Allocations
from benchmark.measures.master.changes import Changes
from benchmark.measures.master.look_ups import LookUps
from benchmark.measures.master.together import Together
from benchmark.measures.permission_checks import PermissionChecks
from benchmark.measures.secured import Secured
from benchmark.results.figures import Series
from benchmark.results.questions import (
    ALLOCATIONS,
    CHANGES,
    CREATION,
    DESCRIBE,
    HAS,
    PERMISSIONS,
    SPACE,
    SPACE_APPENDS,
    STARTS,
    TLS_ONE,
    embedded,
    with_tls,
)
from benchmark.subject import Amount, Subject

BEFORE = "before answer"


def apart(folder: Path, amount: Amount) -> Iterator[Subject]:
    """Subjects whose data lies below `folder`."""
    yield from _secured(folder, amount)
    yield from _permissions()
    yield from _space(folder)
    yield from _embedded(folder, amount)
    yield from _master(folder)


def _secured(folder: Path, amount: Amount) -> Iterator[Subject]:
    both = Together(Secured(folder, amount.messages, amount.long).measure)
    for what in names.TLS_RATES:
        for name in (names.plain(what), names.over_tls(what)):
            yield Subject(Series(name, with_tls(what)), partial(both.take, name))
    for name in (names.plain(names.TLS_ONE), names.over_tls(names.TLS_ONE)):
        yield Subject(Series(name, TLS_ONE), partial(both.take, name))


def _permissions() -> Iterator[Subject]:
    checks = Together(PermissionChecks().measure)
    for name in names.CHECKS:
        yield Subject(Series(name, PERMISSIONS), partial(checks.take, name))


def _space(folder: Path) -> Iterator[Subject]:
    space = Together(GivenBack(folder).measure)
    for name in (names.QUIET_APPENDS, names.APPENDS_AMID):
        yield Subject(Series(name, SPACE_APPENDS), partial(space.take, name))
    yield Subject(Series(names.SPACE_BACK, SPACE), partial(space.take, names.SPACE_BACK))


def _embedded(folder: Path, amount: Amount) -> Iterator[Subject]:
    for size in names.EMBEDDED_SIZES:
        batches = max(80, min(amount.messages // size, 1_600))
        queues = Together(EmbeddedQueues(folder, size, batches).measure)
        for named in (
            names.bare_batches, names.rocksmq, names.rocksmq_tasks, names.rocksmq_reads,
            names.sqlite_queue,
        ):  # fmt: skip
            name = named(size)
            yield Subject(Series(name, embedded(size), BEFORE), partial(queues.take, name))


def _master(folder: Path) -> Iterator[Subject]:
    few, many = names.COLLECTIONS
    look_ups = Together(LookUps(folder).measure)
    for kind, named in (
        (STARTS, names.master_start),
        (HAS, names.master_has),
        (DESCRIBE, names.master_describe),
    ):
        for name in (named(few), named(many)):
            yield Subject(Series(name, kind), partial(look_ups.take, name))
    changes = Together(Changes(folder).measure)
    for name in (names.MASTER_BROADCAST, names.MASTER_CREATE):
        yield Subject(Series(name, CREATION), partial(changes.take, name))
    for name in (names.MASTER_NAME, names.MASTER_NAMES):
        yield Subject(Series(name, CHANGES, unit="changes/s"), partial(changes.take, name))
    allocations = Together(Allocations(folder).measure)
    for name in (names.MASTER_EMPTY, names.MASTER_TIMESTAMP, names.MASTER_ID):
        series = Series(name, ALLOCATIONS, unit="calls/s")
        yield Subject(series, partial(allocations.take, name))
