"""`tidemark group`: creates, shows, seeks and drops consumer groups."""

from typing import Annotated

import typer

from broker.cli.commands.completions import collections
from broker.cli.commands.flags import Json, Place, Server
from broker.cli.groups.group_settings import GroupSettings
from broker.client.groups.modes import Mode, OrderedBy

app = typer.Typer(
    help="Consumer groups: members share the messages of a collection"
    " (`tidemark consume --group` is one).",
    no_args_is_help=True,
)

Target = Annotated[
    str,
    typer.Argument(help="A collection or a vchannel.", autocompletion=collections),
]
Name = Annotated[str, typer.Argument(help="Name of the group.")]
DeliveriesMax = Annotated[
    int | None,
    typer.Option(
        "--deliveries-max",
        metavar="N",
        help="A message delivered N times without an acknowledgement goes to NAME.dead.",
    ),
]


@app.command()
def create(  # noqa: PLR0913 - each is an option
    target: Target,
    name: Name,
    start: Annotated[
        str,
        typer.Option("--from", metavar="all|latest|tick:N|TIME", help="Where the group begins."),
    ] = "all",
    lease: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long a member has what it gets before others get it.",
        ),
    ] = 30.0,
    deliveries_max: DeliveriesMax = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="Members share messages, or get them in order; never changed later."),
    ] = None,
    by: Annotated[
        OrderedBy | None,
        typer.Option(help="Of what one member at a time gets the messages: with --mode ordered."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing when the group exists.")
    ] = False,
    server: Server = "",
) -> None:
    """Create a group on each vchannel of a collection."""
    from broker.cli.groups.group_views import create_group

    settings = GroupSettings(lease, deliveries_max, mode, by)
    create_group(server, target, name, start, settings, exist_ok=if_not_exists)


@app.command()
def alter(
    target: Target,
    name: Name,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Leases from now on.")
    ] = None,
    deliveries_max: DeliveriesMax = None,
    server: Server = "",
) -> None:
    """Change a group without members; without --deliveries-max its deliveries are not limited."""
    from broker.cli.groups.group_views import alter_group

    alter_group(server, target, name, GroupSettings(lease, deliveries_max))


@app.command()
def dead(
    name: Name,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Only the first N.")
    ] = 1000,
    server: Server = "",
    json: Json = False,
) -> None:
    """Show the dead letters of a group: messages that no member could process."""
    from broker.cli.groups.dead_views import show_dead

    show_dead(server, name, limit, as_json=json)


@app.command()
def redrive(target: Target, name: Name, server: Server = "") -> None:
    """Append the dead letters of a collection to it again; those of earlier calls are left out."""
    from broker.cli.groups.dead_views import redrive_dead

    redrive_dead(server, target, name)


@app.command(name="list")
def list_all(
    target: Target,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            metavar="N",
            help="Only the first N, one for each vchannel.",
        ),
    ] = None,
    server: Server = "",
    json: Json = False,
) -> None:
    """List the groups of a collection: members, what they have, what is left, since when idle."""
    from broker.cli.groups.group_views import list_groups

    list_groups(server, target, limit, as_json=json)


@app.command()
def describe(target: Target, name: Name, server: Server = "", json: Json = False) -> None:
    """Show one group: its position on each vchannel, and each member."""
    from broker.cli.groups.group_views import describe_group

    describe_group(server, target, name, as_json=json)


@app.command()
def lag(target: Target, name: Name, server: Server = "", json: Json = False) -> None:
    """Show how much is left above the position of each vchannel."""
    from broker.cli.groups.group_views import show_lag

    show_lag(server, target, name, as_json=json)


@app.command()
def seek(target: Target, name: Name, to: Place, server: Server = "") -> None:
    """Set a group without members to another place; what lies above it is delivered again."""
    from broker.cli.groups.group_views import seek_group

    seek_group(server, target, name, to)


@app.command()
def drop(target: Target, name: Name, server: Server = "") -> None:
    """Drop a group without members."""
    from broker.cli.groups.group_views import drop_group

    drop_group(server, target, name)
