"""The command line: commands and options. What a command does is imported when it runs."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.access import auth_commands
from broker.cli.commands import (
    actors,
    allocation,
    append_input,
    backup,
    broadcasts,
    collection,
    commits,
    completions,
    configuration,
    consumption,
    cursors,
    describe,
    profile,
    segments,
    streaming,
    wal,
)
from broker.cli.commands.definitions import (
    alias_commands,
    database_commands,
    index_commands,
    partition_commands,
)
from broker.cli.commands.flags import (
    AsGroup,
    Config,
    From,
    FromCursor,
    Json,
    Server,
)
from broker.cli.commands.processes import init_command, metadata_commands, process_commands
from broker.cli.global_options import choose, first
from broker.cli.groups import group_commands
from broker.cli.standard_streams import open_standard_streams

app = typer.Typer(
    name="tidemark",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 replaced by "
    "a newer coordinator, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(actors.app, name="actors")
app.add_typer(alias_commands.app, name="alias")
app.add_typer(auth_commands.app, name="auth")
app.add_typer(broadcasts.app, name="broadcasts")
app.add_typer(collection.app, name="collection")
app.add_typer(commits.app, name="commits")
app.add_typer(configuration.app, name="config")
app.add_typer(consumption.app, name="consumption")
app.add_typer(cursors.app, name="cursors")
app.add_typer(cursors.app, name="cursor", hidden=True)  # as in `tidemark cursor reset`
app.add_typer(database_commands.app, name="database")
app.add_typer(group_commands.app, name="group")
app.add_typer(index_commands.app, name="index")
app.add_typer(metadata_commands.app, name="meta")
app.add_typer(partition_commands.app, name="partition")
app.add_typer(profile.app, name="profile")
app.add_typer(segments.app, name="segments")
app.add_typer(streaming.app, name="streaming")
app.add_typer(wal.app, name="wal")
app.command()(allocation.ids)
app.command()(append_input.produce)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(completions.completion)
app.command()(describe.describe)
app.command()(init_command.init)
app.command()(process_commands.serve)
app.command()(process_commands.coordinator)
app.command()(process_commands.node)


def run() -> None:
    """The entry point of the `tidemark` command."""
    open_standard_streams()
    if completions.COMPLETE_VARIABLE in os.environ:
        completions.complete_in_shells()
    app(first(sys.argv[1:]), prog_name="tidemark")


def _print_version(wanted: bool) -> None:
    if wanted:
        from broker.version import version_text

        typer.echo(f"tidemark {version_text()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: ARG001 - its callback has used it
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    config: Config = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completions.profile_names,
            help="Connect as this profile says (`tidemark profile list`); default:"
            " TIDEMARK_PROFILE.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that proves who calls; default: TIDEMARK_TOKEN.",
        ),
    ] = None,
) -> None:
    """Tidemark: a write-ahead-log broker with durable, ordered channels and time ticks.

    --config, --profile and --token-file may also stand behind the command.
    """
    choose(profile, config, token_file)


@app.command()
def consume(  # noqa: PLR0913 - each is an option of the command line
    target: Annotated[
        str,
        typer.Argument(
            help="A collection, a vchannel or a pchannel.", autocompletion=completions.collections
        ),
    ],
    start: From = "all",
    cursor: FromCursor = "",
    group: AsGroup = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    until_now: Annotated[
        bool, typer.Option("--until-now", "-e", help="Stop at the end of the log as it is now.")
    ] = False,
    ignore_pause: Annotated[
        bool, typer.Option("--ignore-pause", help="Read even while consumption is paused.")
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="json|raw|hex|TEMPLATE",
            help="How to write a message: a JSON object, its payload, its payload in hex, or a"
            " template such as '%{time} %{key} %{payload}'; an unknown field lists all fields.",
        ),
    ] = "json",
    filter: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-F",
            metavar="FIELD=VALUE",
            help="Only messages with this value, such as key=AA, key=A*, property:from=Ulm,"
            " type!=2. Repeat it: all must be fulfilled.",
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", "-c", help="Write only the number of messages, at the end.")
    ] = False,
    server: Server = "",
) -> None:
    """Write messages to stdout, one per line, until Ctrl-C or until the pipe is closed."""
    from broker.cli.consuming import ConsumeOptions, consume_messages

    options = ConsumeOptions(
        target,
        start,
        limit,
        until_now,
        format,
        tuple(filter or ()),
        count=count,
        ignore_pause=ignore_pause,
        cursor=cursor,
        group=group,
    )
    consume_messages(server, options)


@app.command()
def channels(server: Server = "", json: Json = False) -> None:
    """Show each pchannel: owner, term, message IDs, closed tick, size."""
    from broker.cli.show.channel_table import show_channels

    show_channels(server, as_json=json)


@app.command()
def barriers(server: Server = "", json: Json = False) -> None:
    """Show barriers: the tick that has passed, the peers, and which of them are late."""
    from broker.cli.show.barrier_table import show_barriers

    show_barriers(server, as_json=json)


@app.command()
def top(
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=60, help="Seconds between two refreshes."),
    ] = 1.0,
    page: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The page to open: collections, lag, channels, work, actors, health, segments or"
            " groups.",
        ),
    ] = "collections",
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Print one page as plain text, with rates over --every, and exit; needs no"
            " terminal.",
        ),
    ] = False,
    width: Annotated[
        int | None, typer.Option(min=60, max=1000, help="With --once: characters of a line.")
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(min=10, max=10_000, help="With --once: at most so many lines; default: all."),
    ] = None,
    server: Server = "",
) -> None:
    """Show a broker live: collections, rates, lag, cursors, channels, work, actors, health."""
    from broker.cli.top.command import Once, run_screen, show_once

    if once:
        show_once(server, Once(page, width, height, every))
    else:
        run_screen(server, every, page)


@app.command()
def health(server: Server = "", json: Json = False) -> None:
    """Show the state of the server; exit code 1 unless it is healthy."""
    from broker.cli.show.health_report import show_health

    show_health(server, as_json=json)
