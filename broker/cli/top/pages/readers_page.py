"""The page of lags: open readers, and named cursors."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.cli.show.tables import natural_order
from broker.cli.top.look import TICK_LOGICAL_BITS, Look, names_of_vchannels, owner_of
from broker.cli.top.section import (
    Page,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
)
from broker.client.cluster import ActorInfo
from broker.core.cluster.actor_kinds import kind_of, pchannel_in

NO_READERS = (
    "No reader is open. `tidemark consume NAME`, a Python program that reads, and Spark each open"
    " one per pchannel."
)
NO_CURSORS = (
    "No cursor is kept. A reader that moves a named cursor (`log.cursor(NAME).move(...)`, or"
    " `tidemark cursors move`) shows here how far it is behind."
)
EVERYTHING = "everything"
NOTES = (
    "lag of a reader: from the tick of what it was given, to the newest closed one",
    "behind: of a reader, messages of the whole pchannel, also of other collections",
    "waiting: it is at the end; reading: more is there; opened: it has asked for nothing",
    "held: bytes read for it and not sent, and open transactions it waits for",
    "lag of a cursor: from its tick to the newest one closed on all its channels",
    "behind, bytes of a cursor: counted every 5 s; much is estimated",
)


@dataclass(frozen=True, slots=True)
class OpenReader:
    """One open reader of one pchannel. `collections`: those it reads, as far as named."""

    pchannel: str
    collections: tuple[str, ...]
    lag_s: float | None
    behind: int | None
    held_bytes: int
    state: str


def readers_page(look: Look) -> Page:
    """Readers, then cursors."""
    return Page("lag", (reader_section(look), cursor_section(look)), NOTES)


def readers_of(look: Look) -> list[OpenReader]:
    """Every open reader of a pchannel that is known."""
    channels = {it.name: (it.next_id, it.closed_tick) for it in look.broker.channels}
    names = names_of_vchannels(look.broker)
    found = []
    for it in look.broker.actors:
        pchannel = pchannel_in(it.path)
        if kind_of(it.path) == "scanner" and "next_id" in it.extra and pchannel in channels:
            vchannels = [*filter(None, (it.extra.get("vchannel"), *_among(it)))]
            owners = tuple(dict.fromkeys(owner_of(name, names) for name in vchannels))
            found.append(_reader(it, pchannel, owners, channels[pchannel]))
    return found


def reader_section(look: Look) -> Section:
    """One row for each reader, the slowest first."""
    columns = (
        name_column("f", "reader of"),
        name_column("h", "pchannel"),
        span_column("l", "lag"),
        count_column("b", "behind"),
        size_column("d", "held", 1),
        text_column("state"),
    )
    found = sorted(readers_of(look), key=lambda it: natural_order(it.pchannel))
    rows = [
        PageRow(
            (
                ", ".join(it.collections) or EVERYTHING,
                it.pchannel,
                it.lag_s,
                it.behind,
                it.held_bytes,
                it.state,
            )
        )
        for it in found
    ]
    missing = look.broker.missing.get("channels", NO_READERS)
    return Section("readers", columns, rows, missing, order="l", down=True)


def cursor_section(look: Look) -> Section:
    """One row for each cursor, the one that is furthest behind first."""
    names = names_of_vchannels(look.broker)
    columns = (
        name_column("c", "cursor"),
        name_column("", "on"),
        span_column("g", "lag"),
        count_column("", "behind"),
        size_column("", "bytes", 1),
        span_column("v", "moved"),
        count_column("", "channels", 2),
    )
    rows = []
    for it in look.broker.cursors:
        owners = dict.fromkeys(owner_of(name, names) for name in it.channels)
        lag_s = it.behind_ms / 1000 if it.closed_tick else None
        # One channel that is not measured makes the sum unknown, not smaller.
        measured = len(it.lags) == len(it.channels)
        behind = (it.rows_behind, it.bytes_behind) if measured else (None, None)
        moved_s = look.since_s(it.moved_ms)
        values = (it.name, ", ".join(owners), lag_s, *behind, moved_s, len(it.channels))
        rows.append(PageRow(values))
    missing = look.broker.missing.get("cursors", NO_CURSORS)
    return Section("cursors", columns, rows, missing, order="g", down=True)


def _among(it: ActorInfo) -> Sequence[str]:
    return it.extra.get("among", "").split()


def _reader(
    it: ActorInfo, pchannel: str, owners: tuple[str, ...], end: tuple[int, int]
) -> OpenReader:
    end_id, closed_tick = end
    next_id, tick = int(it.extra["next_id"]), int(it.extra.get("tick", "0"))
    # Channels and actors are read at slightly different times, so a reader may seem to be ahead.
    behind = max(0, end_id - next_id) if next_id else None
    lag_s = None
    if behind == 0:
        lag_s = 0.0
    elif tick:
        lag_s = max(0, (closed_tick >> TICK_LOGICAL_BITS) - (tick >> TICK_LOGICAL_BITS)) / 1000
    held = int(it.extra.get("cached_bytes", "0")) + int(it.extra.get("open_txn_bytes", "0"))
    return OpenReader(pchannel, owners, lag_s, behind, held, _state(it, behind))


def _state(it: ActorInfo, behind: int | None) -> str:
    if it.extra.get("paused") not in (None, "0"):
        return "paused"
    if behind is None:
        return "opened"
    if it.extra.get("waiting") not in (None, "0"):
        return "waiting"
    return "reading" if behind else "at end"
