"""What `tidemark collection` prints: one row for each collection."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker.cli.schema_files import columns_of
from broker.cli.session import with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.space.kept import compaction_text, retention_fields, retention_text
from broker.cli.show.tables import Column, moment
from broker.client import Client, Collection
from broker.client.append.row_input import BadArrow, decode_schema
from broker.client.cluster.kept_limits import CleanupOptions


@dataclass(frozen=True, slots=True)
class NewCollection:
    """What `collection create` was asked for. `schema`: an Arrow schema, or None."""

    name: str
    shards: int
    schema: Any
    database: str
    options: CleanupOptions
    exist_ok: bool


def create_collection(server: str, wanted: NewCollection, *, as_json: bool) -> None:
    """Create the collection, and print where its shards are."""

    async def create(client: Client) -> Collection:
        return await client.collections.create(
            wanted.name,
            shards=wanted.shards,
            schema=wanted.schema,
            exist_ok=wanted.exist_ok,
            database=wanted.database,
            **wanted.options,
        )

    created = with_client(server, create)
    _print_collections([created], as_json=as_json, alone=True)


def alter_collection(server: str, name: str, columns: Any, database: str, *, as_json: bool) -> None:
    """Add columns to the collection, and print it."""

    async def alter(client: Client) -> Collection:
        return await client.collections.add_columns(name, columns, database=database)

    altered = with_client(server, alter)
    if as_json:
        return _print_collections([altered], as_json=True, alone=True)
    count = altered.schema.widths[-1] if altered.schema is not None else 0
    return show(f"collection {name} has {count} columns")


def change_cleanup(
    server: str, name: str, options: CleanupOptions, database: str, *, as_json: bool
) -> None:
    """Change what the collection keeps, and print it."""

    async def alter(client: Client) -> Collection:
        return await client.collections.alter(name, database=database, **options)

    altered = with_client(server, alter)
    if as_json:
        return _print_collections([altered], as_json=True, alone=True)
    cleanup = compaction_text(altered.compaction)
    return show(f"collection {name} keeps {retention_text(altered.retention)}; {cleanup}")


def drop_collection(server: str, name: str, database: str) -> None:
    """Drop the collection, and say so."""

    async def drop(client: Client) -> None:
        await client.collections.drop(name, database=database)

    with_client(server, drop)
    show(f"collection {name} dropped")


def show_collections(server: str, database: str, *, as_json: bool) -> None:
    """Print one row for each collection of a database."""

    async def ask(client: Client) -> list[Collection]:
        return await client.collections.list(database=database)

    _print_collections(with_client(server, ask), as_json=as_json)


def _columns(collection: Collection) -> list[dict[str, Any]] | None:
    """The columns, in the form that `collection create --schema` takes; None: it has no schema."""
    if collection.schema is None:
        return None
    try:
        return columns_of(decode_schema(collection.schema.arrow))
    except BadArrow:  # without pyarrow only the number of columns is known
        return [{}] * collection.schema.widths[-1]


def _print_collections(found: Sequence[Collection], *, as_json: bool, alone: bool = False) -> None:
    if as_json:
        rows = [
            asdict(it) | {"schema": _columns(it), "retention": retention_fields(it.retention)}
            for it in found
        ]
        return print_json(rows[0] if alone else rows)
    created = [it.created_ms for it in found]
    return show_fitted(
        [
            Column("collection", [it.name for it in found]),
            Column("id", [str(it.id) for it in found], leaves=2),
            Column("shards", [str(len(it.vchannels)) for it in found], leaves=3),
            Column("vchannels", ["\n".join(it.vchannels) for it in found]),
            Column("created", list(map(moment, created)), leaves=1),
        ]
    )
