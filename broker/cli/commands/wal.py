"""`tidemark wal`: looks into log files without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Json

app = typer.Typer(help="Look into log files; no broker needed.", no_args_is_help=True)

Log = Annotated[
    Path, typer.Argument(help="A data folder, its wal folder, the folder of one log, or a file.")
]


@app.command()
def dump(path: Log, json: Json = False) -> None:
    """Every stored record as one line, oldest first, and every damage in its place."""
    from broker.cli.show.log_inspection import dump_log

    dump_log(path, as_json=json)


@app.command()
def verify(path: Log, json: Json = False) -> None:
    """Read everything and check it; exit code 1 when anything is damaged."""
    from broker.cli.show.log_inspection import verify_log

    verify_log(path, as_json=json)
