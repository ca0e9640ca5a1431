"""`tidemark produce`: its options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands import completions
from broker.cli.commands.flags import Json, Server


class InputFormat(StrEnum):
    """What the input holds."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


Partition = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The partition that the rows go to; default: _default."),
]
DeliverAt = Annotated[
    str | None,
    typer.Option(
        "--deliver-at",
        metavar="TIME|DURATION",
        help="Groups get the lines then: 2026-01-02T03:04, local unless it has a zone, or 10m for"
        " in ten minutes. Other readers see them at once.",
    ),
]
Ttl = Annotated[
    float | None,
    typer.Option(
        "--ttl",
        metavar="SECONDS",
        help="Groups pass over lines, or rows, that are older, from --deliver-at on.",
    ),
]


def produce(  # noqa: PLR0913 - each is an option of the command line
    target: Annotated[
        str,
        typer.Argument(help="A collection or a vchannel.", autocompletion=completions.collections),
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Default, and -: stdin.")
    ] = None,
    format: Annotated[
        InputFormat,
        typer.Option(
            help="lines: each is a message. The others are rows of a collection with a schema."
        ),
    ] = InputFormat.LINES,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The column, or the field of lines that are JSON objects, whose value chooses"
            " the shard.",
        ),
    ] = None,
    skip: Annotated[
        int,
        typer.Option(
            min=0,
            help="Leave out so many lines (jsonl too) or rows of the first file: where an earlier"
            " run ended.",
        ),
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Lines per batch, with --format lines.")] = 1000,
    txn: Annotated[
        bool,
        typer.Option(
            "--txn", help="Append each batch as one transaction per shard, with --format lines."
        ),
    ] = False,
    partition: Partition = None,
    deliver_at: DeliverAt = None,
    ttl: Ttl = None,
    new: Annotated[
        bool, typer.Option("--new", help="TARGET is a vchannel that need not exist yet.")
    ] = False,
    server: Server = "",
    json: Json = False,
) -> None:
    """Append lines as messages, or typed rows, in order; blank lines are skipped.

    Ctrl-C ends it with what is stored, and says where to go on.
    """
    from broker.cli.producing import ProduceOptions, produce_input
    from broker.cli.start_text import moment_of

    form = None if format is InputFormat.LINES else format.value
    options = ProduceOptions(
        *(target, tuple(files or ()), key, batch, txn, form, skip, new, partition),
        deliver_at=None if deliver_at is None else moment_of(deliver_at, "--deliver-at"),
        ttl_s=ttl,
    )
    produce_input(server, options, as_json=json)
