"""Who holds back retention and who was passed by it, in words."""

from collections.abc import Sequence

from broker.cli.show.figures import size_text
from broker.cli.show.tables import moment
from broker.client.cluster import LogHolder, PassedHolder


def holder_lines(holders: Sequence[LogHolder], passed: Sequence[PassedHolder]) -> list[str]:
    """A line for each, those who were passed first."""
    return [*map(_passed_line, passed), *map(_holder_line, holders)]


def _passed_line(it: PassedHolder) -> str:
    who = f"{it.kind} {it.name} was passed by retention on {it.pchannel} at {moment(it.passed_ms)}"
    removed = f"messages up to tick {it.removed_tick} are removed"
    match it.cause:
        case "bytes":
            why = f"it held back {size_text(it.bytes)}, more than {size_text(it.limit)}"
        case "time":
            why = "it made no commit in time"
        case _:
            why = "no coordinator answered"
    return f"{who}: {why}; {removed}; reset or drop it"


def _holder_line(it: LogHolder) -> str:
    line = f"{it.kind} {it.name} holds back {size_text(it.bytes)} of {it.pchannel}"
    limits = [] if it.bytes_max is None else [f"until that is more than {size_text(it.bytes_max)}"]
    if it.until_ms is not None:
        limits.append(f"at most until {moment(it.until_ms)}")
    return ", ".join((line, *limits))
