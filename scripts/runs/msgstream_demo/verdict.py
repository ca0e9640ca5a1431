"""What the reader has read, beside what was sent."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from runs.msgstream_demo.proxy import is_deleted


@dataclass(frozen=True, slots=True)
class Outcome:
    """`packs`: the lines of the reader. `by_spark`: messages behind the pack that Spark continued.

    `held`: the flights that each write node holds. `k2s`: ticks that passed the hard barrier.
    """

    flights: Sequence[int]
    packs: Sequence[Mapping[str, Any]]
    lives: int
    held: Sequence[set[int]]
    late: int
    k2s: int
    before_pack: int
    by_spark: int
    in_log: int


def problems(found: Outcome) -> Iterator[str]:
    """What is not as it should be."""
    doomed = {it for it in found.flights if is_deleted(it)}
    yield from _gaps(found.packs)
    yield from _differences("inserted", found.packs, set(found.flights))
    yield from _differences("deleted", found.packs, doomed)
    for number, rows in enumerate(found.held, 1):
        if rows != set(found.flights) - doomed:
            yield f"write node {number} holds {len(rows):,} flights, not the ones that are left"
    if found.late:
        yield f"{found.late:,} messages came behind a tick that covered them"
    if found.lives < 2:
        yield "the reader was not killed"
    if not found.k2s:
        yield "no tick passed the hard barrier"
    if found.before_pack + found.by_spark != found.in_log:
        yield (
            f"{found.before_pack:,} messages up to the pack and {found.by_spark:,} that Spark read"
            f" behind it are not the {found.in_log:,} of the log"
        )


def _gaps(packs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    end = 0
    for number, pack in enumerate(packs):
        if pack["begin"] != end:
            yield f"pack {number} begins at {pack['begin']}, the one before ended at {end}"
        end = pack["end"]


def _differences(what: str, packs: Sequence[Mapping[str, Any]], sent: set[int]) -> Iterator[str]:
    read = Counter[int]()
    for pack in packs:
        read.update(pack[what])
    if lost := sent - read.keys():
        yield f"{len(lost):,} {what} flights were not read, such as {min(lost)}"
    if strange := read.keys() - sent:
        yield f"{len(strange):,} numbers were not {what}, such as {min(strange)}"
    if twice := [it for it, count in read.items() if count > 1]:
        yield f"{len(twice):,} {what} flights were read more than once, such as {min(twice)}"


def table_of(found: Outcome) -> Table:
    """The figures."""
    doomed = sum(map(is_deleted, found.flights))
    table = Table("what", "count", title="Flights through two barriers")
    for what, count in (
        ("flights inserted", len(found.flights)),
        ("deleted again", doomed),
        ("packs of the reader, empty ones too", len(found.packs)),
        ("lives of the reader", found.lives),
        ("flights that each write node holds", len(found.held[0])),
        ("ticks behind the hard barrier", found.k2s),
        ("messages up to the end of one pack", found.before_pack),
        ("messages that Spark read from there", found.by_spark),
    ):
        table.add_row(what, f"{count:,}")
    return table
