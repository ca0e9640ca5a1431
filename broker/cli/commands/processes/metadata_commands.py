"""`tidemark meta`: where the metadata is."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Config, DataDir, Json, Meta
from broker.cli.global_options import chosen

app = typer.Typer(help="Move the metadata of a stopped broker.", no_args_is_help=True)


@app.command()
def copy(
    meta: Meta = None,
    data_dir: DataDir = None,
    back: Annotated[
        bool, typer.Option("--back", help="From etcd to SQLite in the data folder.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Copy the metadata of a stopped broker from its data folder to etcd, and use it there.

    Everything is compared before the broker may start again. Repeat it when it was interrupted.
    """
    from broker.cli.copying_metadata import copy_metadata

    file: Path | None = config or chosen().config
    given = {"config": file, "data_dir": data_dir, "meta": meta}
    copy_metadata(given, back=back, as_json=json)
