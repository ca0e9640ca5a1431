"""The first page: what users have. Collections with their rates, and cursors with their lag."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from broker.cli.show.figures import COUNT_WIDTH, count_text
from broker.cli.top.chart import Chart
from broker.cli.top.look import (
    TOTAL_IN,
    TOTAL_OUT,
    Look,
    flows_by_collection,
    label_of,
    names_of_vchannels,
    owner_of,
)
from broker.cli.top.pages.readers_page import cursor_section, readers_of
from broker.cli.top.rates import STEP_S, Flow
from broker.cli.top.section import (
    Page,
    PageColumn,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
    trend_column,
)
from broker.client.cluster import LogHolder
from broker.core.naming import is_control_channel, pchannel_of
from broker.model.collection import Collection

NO_COLLECTIONS = (
    "There is no collection yet. Create one with `tidemark collection create NAME --shards 4`,"
    " and append to it with `tidemark produce NAME`."
)


def _columns_text(columns: int) -> str:
    return f"{count_text(columns)} cols"


COLUMNS: tuple[PageColumn, ...] = (
    name_column("n", "collection"),
    count_column("i", "in/s"),
    size_column("b", "bytes/s"),
    count_column("o", "out/s"),
    size_column("", "out B/s", 5),
    count_column("d", "readers", 3),
    span_column("l", "lag"),
    count_column("s", "shards", 1),
    PageColumn("", "schema", room=COUNT_WIDTH + 5, form=_columns_text, leaves=4),
    size_column("a", "appended", 2),
    span_column("k", "keeps", 6),
    size_column("", "keeps B", 6),
    size_column("h", "held", 7),
    text_column("held by", 8),
    trend_column("trend"),
)
NOTES = (
    "in/s, bytes/s: messages and stored bytes appended per second",
    "out/s: messages handed to readers per second, once for each reader",
    "lag: how far the slowest open reader is behind the end of the log",
    "appended: stored bytes since its node started; the log on disk is shared, see page 3",
    "keeps: retention of the collection, by age and by bytes of each vchannel; -: none of its own",
    "held: most that one cursor, group or other holder keeps from retention on its pchannels",
    "trend: in/s of the last minutes, 5 s for each character, newest at the right",
)


def collections_page(look: Look) -> Page:
    """Collections first, then cursors."""
    charts = (
        Chart("messages in, per second", look.trend(TOTAL_IN), STEP_S),
        Chart("messages out, per second", look.trend(TOTAL_OUT), STEP_S),
    )
    sections = (collection_section(look), cursor_section(look))
    return Page("collections", sections, NOTES, charts)


@dataclass(slots=True)
class _Sum:
    """What is summed over the vchannels of a collection."""

    appended: int = 0
    readers: int = 0
    lag_s: float | None = None


def collection_section(look: Look) -> Section:
    """One row for each collection, and for each id that is in use without a name."""
    flows = flows_by_collection(look.broker, look.rates)
    sums = _sums(look)
    known = {label_of(it): it for it in look.broker.collections}
    # The control channel carries changes of collections, and is none: page 3 has its pchannel.
    others = sorted(it for it in {*sums, *flows} - {*known} if not is_control_channel(it))
    rows = [_row(look, name, it, flows, sums[name]) for name, it in sorted(known.items())]
    rows += [_row(look, name, None, flows, sums[name]) for name in others]
    return Section(
        "collections",
        COLUMNS,
        rows,
        look.broker.missing.get("collections", NO_COLLECTIONS),
        order="i",
        down=True,
    )


def _row(
    look: Look, name: str, of: Collection | None, flows: Mapping[str, Flow], it: _Sum
) -> PageRow:
    flow = flows.get(name, Flow()) if look.rates.flows is not None else None
    holder = _holder(look, of) if of else None
    values = (
        name,
        flow and flow.messages,
        flow and flow.bytes,
        flow and flow.delivered,
        flow and flow.delivered_bytes,
        it.readers,
        it.lag_s,
        len(of.vchannels) if of else None,
        of.schema.widths[-1] if of and of.schema else None,
        it.appended,
        of.retention.age_ms_max / 1000 or None if of else None,
        of.retention.bytes_max or None if of else None,
        holder and holder.bytes,
        f"{holder.kind} {holder.name}" if holder else None,
        look.trend(name),
    )
    return PageRow(values)


def _holder(look: Look, of: Collection) -> LogHolder | None:
    """Who keeps the most from retention on one of the pchannels that the collection lies on."""
    places = {pchannel_of(it) for it in of.vchannels}
    found = [holder for it in look.broker.channels if it.name in places for holder in it.holders]
    return max(found, key=lambda it: it.bytes, default=None)


def _sums(look: Look) -> defaultdict[str, _Sum]:
    names = names_of_vchannels(look.broker)
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for server in look.broker.traffic:
        for it in server.vchannels:
            sums[owner_of(it.vchannel, names)].appended += it.bytes
    for reader in readers_of(look):
        for name in reader.collections:
            one = sums[name]
            one.readers += 1
            if reader.lag_s is not None:
                one.lag_s = max(one.lag_s or 0.0, reader.lag_s)
    return sums
