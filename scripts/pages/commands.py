"""The table of commands, walked from the command line's own definitions."""

from collections.abc import Iterator

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from broker.cli.main import app
from pages.markdown import code, one_line, table


def cli() -> str:
    """Every command with its arguments, its own options, and what it does."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    rows = [
        (code(f"tidemark {path} {_arguments(command)}".strip()), _options(command), _help(command))
        for path, command in _commands(root, "")
    ]
    return table(("command", "options", "what it does"), rows)


def _commands(group: TyperGroup, before: str) -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            yield from _commands(command, path)
        elif isinstance(command, TyperCommand):
            yield path, command


def _arguments(command: TyperCommand) -> str:
    arguments = [it for it in command.params if isinstance(it, TyperArgument)]
    names = [(it, it.metavar or (it.name or "").upper()) for it in arguments]
    return " ".join(name if it.required else f"[{name}]" for it, name in names)


def _options(command: TyperCommand) -> str:
    options = [it for it in command.params if isinstance(it, TyperOption) and not it.hidden]
    # Short forms behind the long one, as in `--limit -n`.
    names = (sorted(it.opts, key=len, reverse=True) for it in options)
    return ", ".join(code(" ".join(it)) for it in names)


def _help(command: TyperCommand) -> str:
    return one_line((command.help or "").split("\n\n")[0])
