"""What the commands of definitions print: collections in detail, what they have, ids."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from broker.cli.schema_files import columns_of
from broker.cli.session import with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.space.kept import compaction_text, retention_fields, retention_text
from broker.cli.show.tables import Column, moment
from broker.client import Client
from broker.client.append.row_input import BadArrow, decode_schema
from broker.client.master.change_calls import Defined
from broker.client.master.collection_calls import CollectionDescription
from broker.client.master.part_calls import IndexDescription
from broker.model.ids import TICK_LOGICAL_BITS
from broker.model.master.clash import Clash
from broker.model.master.fields import Field


def change(server: str, start: Callable[[Client], Awaitable[Defined]], sentence: str) -> None:
    """Make a change, and say so; with its id when something was created."""
    done = with_client(server, start)
    show(f"{sentence} (id {done.id})" if done.id else sentence)


def show_pairs(
    server: str,
    ask: Callable[[Client], Awaitable[Mapping[str, Any]]],
    titles: tuple[str, str],
    *,
    as_json: bool,
) -> None:
    """Print one row for each name and what belongs to it."""
    found = with_client(server, ask)
    if as_json:
        return print_json([dict(zip(titles, pair, strict=True)) for pair in found.items()])
    return show_fitted(
        [Column(titles[0], list(found)), Column(titles[1], [str(it) for it in found.values()])]
    )


def show_indexes(server: str, collection: str, database: str, *, as_json: bool) -> None:
    """Print one row for each index of a collection."""

    async def ask(client: Client) -> list[IndexDescription]:
        return await client.master.describe_index(collection, database=database)

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(
        [
            Column("index", [it.name for it in found]),
            Column("id", [str(it.id) for it in found], leaves=2),
            Column("field", [it.field for it in found]),
            Column("parameters", ["\n".join(_pairs(it.params)) for it in found]),
            Column("state", [it.state for it in found], leaves=1),
        ]
    )


def describe_collection(server: str, name: str, database: str, *, as_json: bool) -> None:
    """Print all that is known of one collection."""

    async def ask(client: Client) -> tuple[CollectionDescription, Mapping[str, int]]:
        found = await client.master.describe_collection(name, database=database)
        partitions = await client.master.show_partitions(found.name, database=database)
        return found, partitions

    found, partitions = with_client(server, ask)
    fields: dict[str, Any] = {
        "collection": found.name,
        "id": found.id,
        "database": found.database,
        "vchannels": list(found.vchannels),
        "partitions": dict(partitions),
        "aliases": list(found.aliases),
        "fields": [_field(it) for it in found.fields],
        "retention": retention_text(found.retention),
        "cleanup": compaction_text(found.compaction),
        "created": moment(found.created_ms),
    }
    if as_json:
        fields |= {
            "retention": retention_fields(found.retention),
            "cleanup": None if found.compaction is None else asdict(found.compaction),
            "created": found.created_ms,
            "created_tick": found.created_tick,
            "schema": _columns(found),
        }
        return print_json(fields)
    table = Table(show_header=False, box=None)
    fields["partitions"] = [f"{it} ({id})" for it, id in partitions.items()]
    for title, value in fields.items():
        table.add_row(title, "\n".join(value) if isinstance(value, list) else str(value))
    return show(table)


def show_clashes(server: str, *, as_json: bool) -> None:
    """Print one row for each clash."""

    async def ask(client: Client) -> list[Clash]:
        return [it async for it in client.master.list_clashes()]

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(
        [Column("clash", [it.id for it in found]), Column("cause", [it.cause for it in found])]
    )


def clear_clashes(server: str, ids: Sequence[str] | None) -> None:
    """Clear these clashes, or with None all; name those that were not listed."""

    async def clear(client: Client) -> tuple[int, list[str]]:
        listed = client.master.list_clashes()
        given = [it.id async for it in listed] if ids is None else ids
        return len(given), await client.master.clear_clashes(given)

    count, unknown = with_client(server, clear)
    show(f"{count - len(unknown)} cleared")
    if unknown:
        show(f"not listed: {', '.join(unknown)}")


def take_ids(server: str, count: int, *, as_json: bool) -> None:
    """Take ids and timestamps, and print the first of each."""

    async def take(client: Client) -> tuple[int, int]:
        return await client.master.alloc_id(count), await client.master.alloc_timestamp(count)

    id, tick = with_client(server, take)
    if as_json:
        return print_json({"id": id, "timestamp": tick, "count": count})
    table = Table(show_header=False, box=None)
    table.add_row("id", str(id))
    table.add_row("timestamp", f"{tick} ({moment(tick >> TICK_LOGICAL_BITS)})")
    if count > 1:
        table.add_row("count", f"{count:,} of each, from these on")
    return show(table)


def _pairs(params: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in params.items()]


def _field(it: Field) -> str:
    """A field with its type, as Milvus names it."""
    facts = [it.name, it.type.name, *_pairs(dict(it.params))]
    if it.primary:
        facts.append("primary key")
    return " ".join(facts)


def _columns(found: CollectionDescription) -> list[dict[str, Any]] | None:
    """The Arrow columns, as `collection create --schema` takes them; None: it has none."""
    if found.schema is None:
        return None
    try:
        return columns_of(decode_schema(found.schema.arrow))
    except BadArrow:  # without pyarrow only the number of columns is known
        return [{}] * found.schema.widths[-1]
