"""`tidemark config`: reads and changes settings of a running cluster, and keys of applications."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="Read and change settings while the cluster runs, and keys of applications.",
    no_args_is_help=True,
)

Key = Annotated[
    str,
    typer.Argument(
        help="A setting such as retention_ms, or a path such as app/colour; '.' counts as '/'."
    ),
]
IfRevision = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Only if the entry is at this revision, as `config get` shows it; 0: if there is"
        " none.",
    ),
]


@app.command()
def get(
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="Keys, shown in this order; default: everything that is stored."),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Also every key that begins with this; repeatable."),
    ] = None,
    server: Server = "",
    json: Json = False,
) -> None:
    """Show stored entries; exit code 1 when a key is missing."""
    from broker.cli.show.configuration_table import show_entries

    show_entries(server, keys or [], prefix or [], as_json=json)


@app.command("set")
def set_entry(
    key: Key,
    value: Annotated[str, typer.Argument(help="The value; '' is an empty one.")],
    if_revision: IfRevision = None,
    server: Server = "",
    json: Json = False,
) -> None:
    """Set an entry. A setting is in effect in every process within 2 s, and after restarts."""
    from broker.cli.show.configuration_table import change_entry

    change_entry(server, key, value, if_revision, as_json=json)


@app.command()
def unset(
    key: Key, if_revision: IfRevision = None, server: Server = "", json: Json = False
) -> None:
    """Delete an entry. A setting returns to what each process was started with."""
    from broker.cli.show.configuration_table import change_entry

    change_entry(server, key, None, if_revision, as_json=json)


@app.command()
def load(
    path: Annotated[
        Path, typer.Argument(help="A YAML file, or a folder whose *.yaml files are read.")
    ],
    server: Server = "",
    json: Json = False,
) -> None:
    """Set everything that a file says, or nothing when a line of it is wrong."""
    from broker.cli.show.configuration_table import load_entries

    load_entries(server, path, as_json=json)


@app.command()
def diff(
    all_settings: Annotated[
        bool, typer.Option("--all", help="Every setting that may change live, not only changed.")
    ] = False,
    server: Server = "",
    json: Json = False,
) -> None:
    """Compare the settings of the coordinator's start with the stored ones, which win."""
    from broker.cli.show.configuration_table import show_settings

    show_settings(server, every=all_settings, as_json=json)
