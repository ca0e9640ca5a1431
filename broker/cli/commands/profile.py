"""`tidemark profile`: shows the profiles that `--profile` chooses from."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json

app = typer.Typer(
    help="Show profiles: named brokers in a file of yours, chosen by `tidemark --profile NAME`.",
    no_args_is_help=True,
)


@app.command("list")
def list_profiles(json: Json = False) -> None:
    """List the profiles of this user."""
    from broker.cli.show.profile_table import show_profiles

    show_profiles(as_json=json)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="A profile; default: what commands would use now.")
    ] = "",
    json: Json = False,
) -> None:
    """Show every setting of a connection, and where it comes from."""
    from broker.cli.show.profile_table import show_profile

    show_profile(name, as_json=json)
