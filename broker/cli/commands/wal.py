"""`tidemark wal`: reads log files without a broker, and switches the log of a running one."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="Read log files without a broker; switch the log of a running one.", no_args_is_help=True
)

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


@app.command()
def alter(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="kafka://HOST[:PORT],.../PREFIX|segmented",
            help="Where the log is to be: in Kafka, or in segment files of the data folder.",
            show_default=False,
        ),
    ],
    server: Server = "",
    wait: Annotated[
        bool, typer.Option(help="Wait until it has ended, and show how far it is.")
    ] = True,
    leave_history: Annotated[
        bool, typer.Option("--leave-history", help="Leave the old log where it is.")
    ] = False,
) -> None:
    """Switch the log of a running broker to another driver.

    Appends and readers go on; ids and ticks stay. Ctrl-C ends the waiting, not the switch.
    """
    from broker.cli.show.wal_progress import alter_wal

    alter_wal(server, to, leave_history=leave_history, wait=wait)


@app.command()
def status(server: Server = "", json: Json = False) -> None:
    """Show where the log is, and how far a switch of it is."""
    from broker.cli.show.wal_progress import show_status

    show_status(server, as_json=json)


@app.command()
def abort(server: Server = "") -> None:
    """Turn a switch back while no pchannel appends to the new log, and remove the copy."""
    from broker.cli.show.wal_progress import abort_wal

    abort_wal(server)
