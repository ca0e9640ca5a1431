"""Arguments that the commands of definitions share."""

from typing import Annotated

import typer

from broker.cli.commands import completions

Collection = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION", help="Name of a collection.", autocompletion=completions.collections
    ),
]
Database = Annotated[
    str, typer.Option(metavar="NAME", help="Database of the collection; default: default.")
]
