"""Whether every flight was processed once, and the poison alone was put aside."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True, slots=True)
class PutAside:
    """A message in the dead letters, and why it is there."""

    payload: bytes
    cause: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker did. `lost`: batches that others had to process."""

    name: str
    flights: int
    lost: int
    fate: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """`processed`: the numbers of flights, as often as each was; `dead`: what was put aside."""

    flights: int
    processed: Counter[int]
    dead: Sequence[PutAside]
    poison: bytes
    shares: Sequence[Share]


def problems(found: Outcome) -> Iterator[str]:
    """Each broken promise; none when all is well."""
    missing = [it for it in range(found.flights) if not found.processed[it]]
    if missing:
        yield f"{len(missing):,} flights were not processed; the first one is {missing[0]}"
    twice = [it for it, times in found.processed.items() if times > 1]
    if twice:
        yield f"{len(twice):,} flights were processed more than once, such as {min(twice)}"
    unknown = [it for it in found.processed if not 0 <= it < found.flights]
    if unknown:
        yield f"{len(unknown):,} numbers are no flights, such as {unknown[0]}"
    payloads = [it.payload for it in found.dead]
    if payloads.count(found.poison) != 1:
        yield f"the poison message is {payloads.count(found.poison)} times in the dead letters"
    others = len(payloads) - payloads.count(found.poison)
    if others:
        yield f"{others:,} other messages are in the dead letters"


def table_of(found: Outcome) -> Table:
    """A line for each worker, and one for the dead letters."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("worker")
    for heading in ("flights", "batches lost"):
        table.add_column(heading, justify="right")
    table.add_column("what happened")
    for it in found.shares:
        table.add_row(it.name, f"{it.flights:,}", f"{it.lost:,}", it.fate)
    total = sum(found.processed.values())
    once = sum(times == 1 for times in found.processed.values())
    table.add_row(
        "all", f"{total:,}", "", f"{once:,} of {found.flights:,} flights once", style="bold"
    )
    for letter in found.dead:
        table.add_row("dead letters", "1", "", f"{letter.payload.decode()!r}: {letter.cause}")
    return table
