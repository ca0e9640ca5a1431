"""The options that say how much a collection keeps."""

from typing import Annotated

import typer

RetentionMs = Annotated[
    int | None,
    typer.Option(
        metavar="MS",
        help="Remove messages that are older, in milliseconds from 1000 on; -1: no limit.",
    ),
]

RetentionBytes = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="Keep about as many bytes of each vchannel, from 65536 on; -1: no limit.",
    ),
]
