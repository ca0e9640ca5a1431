"""Prints answers to stdout: tables that fit the terminal, trees, JSON."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType

from broker.cli.show.tables import Column, fitted, table_width
from broker.cli.standard_streams import end_on_closed_pipe

WIDE = 250
"""Width where stdout is not a terminal, so that tables in files and pipes are not folded."""

TICK_LOGICAL_BITS = 18


def print_json(value: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
    """Print one line of JSON; a closed pipe is a success."""
    with end_on_closed_pipe():
        sys.stdout.write(json.dumps(value) + "\n")


def show(*shown: RenderableType) -> None:
    """Print each value on lines of its own."""
    with end_on_closed_pipe():
        _console().print(*shown, sep="\n")


def show_lines(*lines: str) -> None:
    """Print each line whole, however long it is: a command that is folded cannot be copied."""
    with end_on_closed_pipe():
        sys.stdout.writelines(f"{it}\n" for it in lines)


def show_fitted(columns: Sequence[Column]) -> None:
    """Print a table that fits the terminal; see `tables`."""
    console = _console()
    table = fitted(columns, console)
    # Too wide a table is folded by the terminal; rich would cut its cells.
    console.width = max(console.width, table_width(table, console))
    with end_on_closed_pipe():
        console.print(table)


def _console() -> Console:
    """A console without markup: names like `[red]` and `:cat:` are printed as they are."""
    width = None if sys.stdout.isatty() else WIDE
    return _Console(width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    """Leaves a closed pipe to `end_on_closed_pipe`; rich would exit with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
