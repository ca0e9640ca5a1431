"""Divides what a program settles at once into requests that a server takes. Pure.

A request names at most `SPANS_MAX` spans, and a batch may have ten times as many messages.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from broker.client.errors import ServerRefusal, TidemarkError
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


@dataclass(frozen=True, slots=True)
class SettlePart:
    """One request. `uptos`: the ends of the spans as they were before some were joined."""

    spans: Sequence[TickSpan]
    uptos: Sequence[TimeTick]


def parts_of(
    spans: Sequence[TickSpan], spans_max: int, asked: Collection[int] | None
) -> list[SettlePart]:
    """The spans, in order, in parts of at most `spans_max`; those that touch are joined.

    `asked`: the ends of spans that a request has named before; None: there is no telling. Those are
    not joined, so that the server refuses the ones that are settled: of a joined span it would
    take what is left, and say nothing of the rest.
    """
    parts: list[SettlePart] = []
    joined: list[TickSpan] = []
    uptos: list[TimeTick] = []
    open_end: TimeTick | None = None  # of the last span, if the next one may be joined with it
    for span in spans:
        alone = asked is None or span.upto in asked
        if not alone and span.after == open_end:
            joined[-1] = TickSpan(joined[-1].after, span.upto)
        else:
            if len(joined) == spans_max:
                parts.append(SettlePart(joined, uptos))
                joined, uptos = [], []
            joined.append(span)
        uptos.append(span.upto)
        open_end = None if alone else span.upto
    return [*parts, SettlePart(joined, uptos)]


def part_error(error: TidemarkError, parts: Sequence[SettlePart], failed: int) -> TidemarkError:
    """The error of the part at `failed`, as `parts` were sent; it says what became of the others.

    Of the same type: what a program does about it is the same.
    """
    part = parts[failed]
    told = (
        f"{sum(len(it.uptos) for it in parts)} ticks were named, too many for one request: this is"
        f" about the {len(part.uptos)} from tick {part.spans[0].after + 1} to {part.uptos[-1]};"
        f" {_count(parts[:failed])} are settled, {_count(parts[failed + 1 :])} were not sent"
    )
    if isinstance(error, ServerRefusal):
        return type(error)(f"{error.cause}; {told}", error.code)
    return type(error)(f"{error}; {told}")


def _count(parts: Sequence[SettlePart]) -> str:
    """How many ticks these parts name, and where."""
    if not parts:
        return "0"
    first = min(it.spans[0].after for it in parts) + 1
    last = max(it.uptos[-1] for it in parts)
    return f"{sum(len(it.uptos) for it in parts)} (from tick {first} to {last})"
