"""What `tidemark describe` prints: a list of facts, then a table for each list in them."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from broker.cli.describing import Facts, describe
from broker.cli.show.figures import size_text, span_text
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column, moment

MOMENTS = ("created_ms", "moved_ms", "processed_ms", "closed_ms", "passed_ms", "until_ms")
UNLIMITED = ("bytes_max", "until_ms")
UNKNOWN = "unknown"


def show_description(server: str, name: str, *, as_json: bool) -> None:
    """Print what the broker knows about everything of this name."""
    found = describe(server, name)
    if as_json:
        return print_json(found)
    for number, (kind, facts) in enumerate(found.items()):
        _show_kind(kind, facts, first=number == 0)
    return None


def _show_kind(kind: str, facts: Facts, *, first: bool) -> None:
    schema = facts.pop("schema", None)
    if schema is not None:
        facts["schema"] = f"version {schema['version']}"
        facts["columns"] = schema["columns"]
    plain = {name: it for name, it in facts.items() if not isinstance(it, list)}
    width = max(len(_title(name)) for name in plain)
    lines = [f"{_title(name):<{width}}  {_text(name, it)}" for name, it in plain.items()]
    show(*([] if first else [""]), Text(kind, style="bold"), *lines)
    for name, rows in facts.items():
        if isinstance(rows, list) and rows:
            show("", Text(name, style="bold"))
            show_fitted(_columns(rows))


def _columns(rows: Sequence[Facts]) -> list[Column]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    # The later a column stands, the sooner it leaves a narrow terminal.
    return [
        Column(_title(name), [_text(name, it.get(name)) for it in rows], leaves=number)
        for number, name in enumerate(names)
    ]


def _title(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _text(name: str, value: Any) -> str:
    if value is None and name in UNLIMITED:
        return "no limit"
    if value is None:
        return UNKNOWN if name.endswith(("_ms", "behind", "bytes", "messages")) else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in MOMENTS:
        return moment(value)
    if name.endswith("_ms"):
        return span_text(value / 1000)
    if "bytes" in name:
        return size_text(value)
    if isinstance(value, int) and "tick" not in name and not name.endswith("id"):
        return f"{value:,}"
    return str(value)
