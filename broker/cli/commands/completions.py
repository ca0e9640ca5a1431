"""Completes names in a shell: those of collections and cursors from the broker, those of profiles.

A shell waits for it, so the broker has to answer within half a second; else nothing is offered.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

ANSWER_S: Final = 0.5
COMPLETE_VARIABLE: Final = "_TIDEMARK_COMPLETE"


class Shell(StrEnum):
    """The shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that evaluates the output.")],
) -> None:
    """Print the completion of a shell, as for `source <(tidemark completion bash)`."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name="tidemark", complete_var=COMPLETE_VARIABLE, shell=shell.value
    )
    sys.stdout.write(f"{script}\n")


def complete_in_shells() -> None:
    """Make the command line answer the shells' questions."""
    from typer._completion_classes import completion_init

    completion_init()


def collections(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of collections that begin so."""
    return _asked(ctx, incomplete, lambda client: client.collections.list())


def cursors(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of cursors that begin so."""
    return _asked(ctx, incomplete, lambda client: client.cursors.list(measured=False))


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of collections and of cursors that begin so."""
    return sorted({*collections(ctx, incomplete), *cursors(ctx, incomplete)})


def profile_names(incomplete: str) -> list[str]:
    """Names of profiles that begin so."""
    from broker.cli.client_connection import profiles
    from broker.config_file import BadConfig

    try:
        return [it for it in sorted(profiles()) if it.startswith(incomplete)]
    except BadConfig:
        return []


def _asked(
    ctx: typer.Context, incomplete: str, ask: Callable[[Any], Awaitable[Iterable[Any]]]
) -> list[str]:
    import asyncio

    from broker.cli.client_connection import connection
    from broker.client import Deadlines, TidemarkError, connect
    from broker.config_file import BadConfig

    deadlines = Deadlines(connect_s=ANSWER_S, open_s=ANSWER_S, call_s=ANSWER_S, close_s=0.1)
    given = ctx.find_root().params

    async def found() -> list[str]:
        chosen = connection(ctx.params.get("server") or "", given.get("profile"))
        connecting = connect(
            chosen.server,
            cluster=chosen.cluster,
            deadlines=deadlines,
            tls=chosen.tls,
            token=chosen.token,
        )
        async with connecting as client:
            return [it.name for it in await ask(client)]

    try:
        return [it for it in asyncio.run(found()) if it.startswith(incomplete)]
    except (TidemarkError, BadConfig):
        return []
