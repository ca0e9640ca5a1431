"""`tidemark wal`: reads log files without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Json

app = typer.Typer(help="Read log files; needs no broker.", no_args_is_help=True)

Log = Annotated[
    Path,
    typer.Argument(help="A data folder, its wal folder, a log's folder or a segment file."),
]


@app.command()
def dump(path: Log, json: Json = False) -> None:
    """Print every record as one line, oldest first, with damage where it is."""
    from broker.cli.show.log_inspection import dump_log

    dump_log(path, as_json=json)


@app.command()
def verify(path: Log, json: Json = False) -> None:
    """Check every record; exit code 1 when anything is damaged."""
    from broker.cli.show.log_inspection import verify_log

    verify_log(path, as_json=json)
