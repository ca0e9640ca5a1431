"""The page of nodes and pchannels: who serves what, and what each log holds."""

from collections import defaultdict

from broker.cli.show.tables import natural_order
from broker.cli.top.look import Look
from broker.cli.top.pages.readers_page import readers_of
from broker.cli.top.rates import Flow
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
from broker.client.cluster import ChannelInfo
from broker.core.naming import pchannel_of

NO_NODES = (
    "No node serves a channel: start one with `tidemark node`, or `tidemark serve --nodes 3`."
)
NO_CHANNELS = "The broker names no pchannel: its coordinator is still starting."
NOTES = (
    "closed: age of the newest closed tick; readers wait when it grows",
    "messages: ids that the log holds; retention removes the oldest ones",
    "replay: messages that a restart reads again",
    "shards: vchannels of collections; the control pchannel carries cluster-wide changes, too",
)


def channels_page(look: Look) -> Page:
    """Nodes, then pchannels."""
    return Page("channels", (node_section(look), channel_section(look)), NOTES)


def node_section(look: Look) -> Section:
    """One row for each node that serves pchannels."""
    flows = flows_by_pchannel(look)
    served: dict[tuple[int, str], list[ChannelInfo]] = defaultdict(list)
    for it in look.broker.channels:
        if it.address:
            served[it.node_id, it.address].append(it)
    rows = []
    for (node_id, address), channels in sorted(served.items()):
        total = Flow()
        for it in channels:
            total = total.plus(flows.get(it.name, Flow()))
        known = look.rates.flows is not None
        rows.append(
            PageRow(
                (
                    f"node {node_id}",
                    address,
                    len(channels),
                    sum(len(it.vchannels) for it in channels),
                    total.messages if known else None,
                    total.bytes if known else None,
                    total.delivered if known else None,
                    sum(it.size_bytes for it in channels),
                )
            )
        )
    columns = (
        name_column("", "node"),
        name_column("", "address"),
        count_column("", "channels"),
        count_column("", "shards", 1),
        count_column("", "in/s"),
        size_column("", "bytes/s"),
        count_column("", "out/s"),
        size_column("", "on disk"),
    )
    return Section("nodes", columns, rows, look.broker.missing.get("channels", NO_NODES))


def channel_section(look: Look) -> Section:
    """One row for each pchannel."""
    troubled = {it.name: it.state for it in look.broker.health.troubles}
    flows = flows_by_pchannel(look)
    readers: dict[str, int] = defaultdict(int)
    for reader in readers_of(look):
        readers[reader.pchannel] += 1
    rows = [
        _row(look, it, troubled.get(it.name, ""), flows, readers[it.name])
        for it in sorted(look.broker.channels, key=lambda it: natural_order(it.name))
    ]
    columns = (
        name_column("h", "pchannel"),
        text_column("state"),
        count_column("t", "term", 3),
        count_column("n", "node", 4),
        count_column("i", "in/s"),
        size_column("b", "bytes/s", 2),
        span_column("c", "closed"),
        count_column("m", "messages"),
        size_column("d", "on disk"),
        count_column("a", "readers", 6),
        count_column("x", "txns", 5),
        count_column("y", "replay", 7),
        count_column("s", "shards", 1),
        text_column("role", 8),
    )
    return Section("pchannels", columns, rows, look.broker.missing.get("channels", NO_CHANNELS))


def flows_by_pchannel(look: Look) -> dict[str, Flow]:
    """The sums over the vchannels of each pchannel."""
    found: dict[str, Flow] = {}
    for vchannel, flow in (look.rates.flows or {}).items():
        name = pchannel_of(vchannel)
        found[name] = found.get(name, Flow()).plus(flow)
    return found


def _row(
    look: Look, it: ChannelInfo, trouble: str, flows: dict[str, Flow], readers: int
) -> PageRow:
    flow = flows.get(it.name, Flow()) if look.rates.flows is not None else None
    values = (
        it.name,
        trouble or ("read-only" if it.read_only else it.state),
        it.term,
        it.node_id,
        flow and flow.messages,
        flow and flow.bytes,
        look.age_s(it.closed_tick),
        it.next_id - it.first_id,
        it.size_bytes,
        readers,
        it.open_txns,
        it.checkpoint_lag,
        len(it.vchannels),
        "control" if it.is_control_host else "",
    )
    return PageRow(values, odd=bool(trouble))
