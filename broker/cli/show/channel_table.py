"""What `tidemark channels` prints: one row for each pchannel."""

from collections.abc import Sequence
from dataclasses import asdict

from broker.cli.session import with_client
from broker.cli.show.output import TICK_LOGICAL_BITS, print_json, show_fitted
from broker.cli.show.tables import Column, moment, natural_order, short_moment
from broker.client.cluster import ChannelInfo

ASSIGNED = "assigned"


def show_channels(server: str, *, as_json: bool) -> None:
    """Print one row for each pchannel."""
    found = with_client(server, lambda client: client.admin.channels())
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(channel_columns(sorted(found, key=lambda it: natural_order(it.name))))


def channel_columns(found: Sequence[ChannelInfo]) -> list[Column]:
    """The columns of the table, with a cell for each channel."""
    closed = [it.closed_tick >> TICK_LOGICAL_BITS for it in found]
    newest = max(closed, default=0)
    all_assigned = all(_state(it) == ASSIGNED for it in found)
    one_node = len({it.node_id for it in found}) < 2
    return [
        Column("pchannel", [it.name for it in found]),
        Column("term", [str(it.term) for it in found]),
        Column("state", [_state(it) for it in found], leaves=3 if all_assigned else 0),
        Column("node", [str(it.node_id) for it in found], leaves=4 if one_node else 0),
        Column("address", [it.address for it in found], leaves=5),
        Column("ids", [_ids(it) for it in found]),
        Column("closed", list(map(moment, closed)), [short_moment(it, newest) for it in closed]),
        Column("confirmed", [str(it.last_confirmed_id) for it in found], leaves=6),
        Column("open txns", [_txns(it) for it in found], leaves=7),
        Column("segments", [str(it.growing_segments) for it in found], leaves=8),
        Column("bytes", [f"{it.size_bytes:,}" for it in found], leaves=1),
        Column("shards", [_shards(it) for it in found], leaves=2),
    ]


def _state(channel: ChannelInfo) -> str:
    return f"{channel.state} read-only" if channel.read_only else channel.state


def _txns(channel: ChannelInfo) -> str:
    prepared = channel.prepared_txns
    return f"{channel.open_txns}, {prepared} prepared" if prepared else str(channel.open_txns)


def _ids(channel: ChannelInfo) -> str:
    if channel.next_id <= channel.first_id:
        return "none"
    return f"{channel.first_id}..{channel.next_id - 1}"


def _shards(channel: ChannelInfo) -> str:
    return f"{len(channel.vchannels)}{' + control' if channel.is_control_host else ''}"
