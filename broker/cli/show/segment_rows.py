"""What `tidemark segments` prints: one row for each segment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cli.session import USAGE, fail, with_client
from broker.cli.show.figures import size_text
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column, moment
from broker.client import Client
from broker.client.errors import UnknownDefinition
from broker.model.ids import TICK_LOGICAL_BITS, PartitionId, TimeTick
from broker.model.master.segment_meta import SegmentMeta

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Shown:
    """Which segments to show: of a collection and a partition by name or id; in a state."""

    collection: str
    database: str
    partition: str | None
    state: str | None


def show_segments(server: str, shown: Shown, *, as_json: bool) -> None:
    """Print one row for each segment of a collection."""

    async def ask(client: Client) -> tuple[list[SegmentMeta], Mapping[PartitionId, str]]:
        id = await _id_of(client, shown.collection, shown.database)
        ids = await _partitions_of(client, id)
        only = None if shown.partition is None else _partition_id(shown.partition, ids)
        names = {id: name for name, id in ids.items()}
        return await client.master.show_segments(id, only), names

    found, names = with_client(server, ask)
    matching = [it for it in found if shown.state in (None, it.state.value)]
    _print(matching, names, as_json=as_json)


def show_flushes(server: str, *, as_json: bool) -> None:
    """Print one row for each segment that waits for an acknowledgement."""

    async def ask(client: Client) -> list[SegmentMeta]:
        return [it async for it in client.master.list_flushes()]

    _print(with_client(server, ask), {}, as_json=as_json)


def show_states(server: str, segments: Sequence[int], *, as_json: bool) -> None:
    """Print the state of each segment."""

    async def ask(client: Client) -> Mapping[int, str]:
        return await client.master.get_segment_states(segments)

    found = with_client(server, ask)
    if as_json:
        return print_json([{"segment": id, "state": it} for id, it in found.items()])
    return show_fitted(
        [Column("segment", [str(id) for id in found]), Column("state", list(found.values()))]
    )


def seal_collection(server: str, collection: str, database: str) -> None:
    """Seal its growing segments, and say where."""

    async def seal(client: Client) -> int:
        return await client.master.seal_collection(await _id_of(client, collection, database))

    vchannels = with_client(server, seal)
    show(f"sealing the growing segments of {collection} on {vchannels} vchannels")


def acknowledge_flushes(server: str, segments: Sequence[int]) -> None:
    """Acknowledge them, and name those that are not flushed."""

    async def acknowledge(client: Client) -> list[int]:
        return await client.master.acknowledge_flushes(segments)

    refused = with_client(server, acknowledge)
    show(f"{len(segments) - len(refused)} acknowledged")
    if refused:
        show(f"not flushed, or unknown: {', '.join(map(str, refused))}")


async def _id_of(client: Client, collection: str, database: str) -> int:
    if collection.isdigit():  # no name begins with a digit
        return int(collection)
    return (await client.collections.get(collection, database=database)).id


async def _partitions_of(client: Client, id: int) -> Mapping[str, PartitionId]:
    """Empty for a collection that is not in the table: a program announced it to its log itself."""
    try:
        known = await client.master.describe_collection(collection_id=id)
        return await client.master.show_partitions(known.name, database=known.database)
    except UnknownDefinition:
        return {}


def _partition_id(given: str, ids: Mapping[str, PartitionId]) -> PartitionId:
    # A name may consist of digits, so names go first.
    if given in ids:
        return ids[given]
    if given.isdigit():
        return PartitionId(int(given))
    return fail(f"there is no partition {given!r}; there are {', '.join(ids) or 'none'}", USAGE)


def _print(
    found: Sequence[SegmentMeta], names: Mapping[PartitionId, str], *, as_json: bool
) -> None:
    if as_json:
        return print_json([_fields(it, names) for it in found])
    return show_fitted(
        [
            Column("segment", [str(it.id) for it in found]),
            Column("partition", [names.get(it.partition_id, str(it.partition_id)) for it in found]),
            Column("state", [it.state.value for it in found]),
            Column("rows", [f"{it.rows:,}" for it in found]),
            Column("size", [size_text(it.size_bytes) for it in found]),
            Column("from", [it.vchannel or "reservations" for it in found], leaves=3),
            Column("opened", [_moment(it.open_tick) for it in found], leaves=2),
            Column("closed", [_moment(it.close_tick) for it in found], leaves=1),
        ]
    )


def _moment(tick: TimeTick) -> str:
    return moment(tick >> TICK_LOGICAL_BITS) if tick else NOTHING


def _fields(it: SegmentMeta, names: Mapping[PartitionId, str]) -> dict[str, Any]:
    return {
        "segment": it.id,
        "collection": it.collection_id,
        "partition": it.partition_id,
        "partition_name": names.get(it.partition_id),
        "state": it.state.value,
        "origin": it.origin.value,
        "vchannel": it.vchannel,
        "level": it.level.name.lower(),
        "rows": it.rows,
        "bytes": it.size_bytes,
        "rows_max": it.rows_max,
        "bytes_max": it.size_bytes_max,
        "open_tick": it.open_tick,
        "close_tick": it.close_tick,
        "modified_tick": it.modified_tick,
        "channel_start": it.channel_start,
        "channel_end": it.channel_end,
    }
