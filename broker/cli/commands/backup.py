"""`tidemark backup` and `tidemark restore`: the options."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server


def backup(
    folder: Annotated[Path, typer.Argument(help="New folder for the backup; must be empty.")],
    previous: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="BACKUP",
            help="An earlier backup on the same file system: full segments that it has already are"
            " linked, not copied. Both stay complete in themselves.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Take no backup: check the one in FOLDER, byte by byte."),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Data folder of the broker, where it has another path than it reports."),
    ] = None,
    server: Server = "",
    json: Json = False,
) -> None:
    """Back up a live broker, consistent at one tick; run it on the machine of its data folder.

    Writers and readers continue; broadcasts and commits wait for some milliseconds.
    """
    from broker.cli.backing_up import BackupOptions, take_backup, verify_backup

    if verify and (previous is not None or data_dir is not None):
        raise typer.BadParameter("--verify reads a backup only; leave --from and --data-dir out")
    if verify:
        verify_backup(folder, as_json=json)
    else:
        take_backup(server, BackupOptions(folder, previous, data_dir), as_json=json)


def restore(
    folder: Annotated[Path, typer.Argument(help="The backup.")],
    data_dir: Annotated[Path, typer.Option(help="New data folder; must be empty or missing.")],
    json: Json = False,
) -> None:
    """Make a data folder from a backup, whole or not at all; needs no broker.

    Every checksum is compared before anything is written.
    """
    from broker.cli.backing_up import restore_backup

    restore_backup(folder, data_dir, as_json=json)
