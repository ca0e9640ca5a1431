"""`tidemark segments`: shows and seals segments; lists and acknowledges flushes."""

from enum import StrEnum
from typing import Annotated

import typer

from broker.cli.commands.completions import collections as known_collections
from broker.cli.commands.definitions.arguments import Database
from broker.cli.commands.flags import Json, Server
from broker.cli.commands.show_by_default import ShowByDefaultGroup

app = typer.Typer(
    cls=ShowByDefaultGroup,
    help="Show the segments of a collection (`tidemark segments flights`); seal them; acknowledge"
    " flushed ones.",
)

CollectionArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="Name of a collection, or its ID.",
        autocompletion=known_collections,
    ),
]
Segments = Annotated[list[int], typer.Argument(metavar="SEGMENT...", help="IDs of segments.")]


class State(StrEnum):
    """States of segments, for `--state`."""

    GROWING = "growing"
    SEALED = "sealed"
    FLUSHED = "flushed"


@app.command()
def show(
    collection: CollectionArgument,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of this partition; or its ID.")
    ] = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    database: Database = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Show the segments of a collection, with the rows and bytes that they hold."""
    from broker.cli.show.segment_rows import Shown, show_segments

    shown = Shown(collection, database, partition, state and state.value)
    show_segments(server, shown, as_json=json)


@app.command()
def states(segments: Segments, server: Server = "", json: Json = False) -> None:
    """Show the state of each segment: growing, sealed, flushed, dropped or not_exist."""
    from broker.cli.show.segment_rows import show_states

    show_states(server, segments, as_json=json)


@app.command()
def seal(collection: CollectionArgument, database: Database = "", server: Server = "") -> None:
    """Seal the growing segments of a collection; they are flushed soon after."""
    from broker.cli.show.segment_rows import seal_collection

    seal_collection(server, collection, database)


@app.command()
def flushes(server: Server = "", json: Json = False) -> None:
    """Show the flushed segments that nobody has acknowledged, oldest flush first."""
    from broker.cli.show.segment_rows import show_flushes

    show_flushes(server, as_json=json)


@app.command()
def acknowledge(segments: Segments, server: Server = "") -> None:
    """Acknowledge flushed segments: they are not listed again, and forgotten after a week."""
    from broker.cli.show.segment_rows import acknowledge_flushes

    acknowledge_flushes(server, segments)
