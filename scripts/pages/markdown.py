"""Markdown tables from rows of text."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; pipes and line breaks in cells are made safe."""
    lines = [_line(heads), _line(["---"] * len(heads))]
    lines += [_line([_cell(it) for it in row]) for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    """As code, or nothing where there is no text."""
    return f"`{text}`" if text else ""


def one_line(text: str | None) -> str:
    """A docstring or help text as one line."""
    return " ".join((text or "").split())


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")
