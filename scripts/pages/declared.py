"""Tables read from declarations: settings, errors, limits, options of Spark.

The descriptions are the string literals below the fields, which Python throws away at run time, so
the source is read as text.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from broker.app.settings_in_force import LIVE_SETTINGS
from broker.client import errors as client_errors
from broker.config_file import ClientConfig
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.coordinator.commit.committer import CommitterLimits
from broker.core.log.numbered_producers import ProducerLimits
from broker.core.segments.segment_sealing import SegmentLimits
from broker.core.txn.txn_limits import TxnLimits
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.node.state.node_limits import NodeLimits
from broker.process_settings import Settings
from broker.spark.sink.sink_options import OPTIONS as SINK_OPTIONS
from broker.spark.source.source_options import OPTIONS as SOURCE_OPTIONS
from broker.transport import ListenerLimits
from pages.markdown import code, one_line, table

LIMITS: tuple[tuple[str, type[Any]], ...] = (
    ("a call", EdgeLimits),
    ("the port", ListenerLimits),
    ("a node", NodeLimits),
    ("transactions of a pchannel", TxnLimits),
    ("numbered producers of a pchannel", ProducerLimits),
    ("a segment of a collection", SegmentLimits),
    ("all broadcasts", BroadcasterLimits),
    ("commits of batches", CommitterLimits),
)
FROM_SETTINGS = (EdgeLimits, ListenerLimits, NodeLimits)
"""Their fields are named as the settings that fill them, which describe them."""
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def settings() -> str:
    """Every setting of a broker: its key in the file, its variable, its default, what it does."""
    said = descriptions(Settings)
    rows = [
        (
            code("" if name == "config" else name),  # a file cannot name another one
            code(f"TIDEMARK_{name.upper()}"),
            code(shown(name, field.default)),
            "yes" if name in LIVE_SETTINGS else "",
            said.get(name, ""),
        )
        for name, field in Settings.model_fields.items()
    ]
    return table(("key", "variable", "default", "live", "meaning"), rows)


def client_settings() -> str:
    """Every setting of a client command: its key in `[client]` or a profile, what it does."""
    said = descriptions(ClientConfig)
    rows = [(code(it.name), said.get(it.name, "")) for it in fields(ClientConfig)]
    return table(("key", "meaning"), rows)


def errors() -> str:
    """Every exception of the client: its streaming code, whether a retry may help, its meaning."""
    rows = []
    for kind in _subclasses(client_errors.TidemarkError):
        expected = getattr(kind, "expected", None)
        refusal = issubclass(kind, client_errors.ServerRefusal)
        number = str(int(expected)) if refusal and expected is not None else ""
        retriable = "yes" if kind.retriable else "no"
        rows.append((code(kind.__name__), number, retriable, first_paragraph(kind)))
    return table(("raised", "code", "retriable", "meaning"), rows)


def limits() -> str:
    """Every limit with a description, by what it bounds."""
    of_settings = descriptions(Settings)
    rows = []
    for what, kind in LIMITS:
        assert is_dataclass(kind), kind
        said = descriptions(kind)
        for field in fields(kind):
            if is_dataclass(field.default):
                continue
            meaning = said.get(field.name, "")
            if kind in FROM_SETTINGS:
                meaning = meaning or of_settings.get(field.name, "")
            default = shown(field.name, field.default)
            rows.append((what, code(field.name), code(default), meaning))
    return table(("of", "limit", "default", "meaning"), rows)


def spark_options() -> str:
    """The options of the Spark source."""
    return _options(SOURCE_OPTIONS)


def spark_sink_options() -> str:
    """The options of the Spark sink."""
    return _options(SINK_OPTIONS)


def _options(options: Mapping[str, tuple[str, str]]) -> str:
    rows = [(code(name), default, meaning) for name, (default, meaning) in options.items()]
    return table(("option", "default", "meaning"), rows)


def descriptions(kind: type[Any]) -> dict[str, str]:
    """What the literals below the fields of a class say, by field."""
    module = importlib.import_module(kind.__module__)
    declared = next(
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    said = {}
    for above, below in zip(declared.body, declared.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(text, ast.Constant)
            and isinstance(text.value, str)
        ):
            said[above.target.id] = one_line(text.value)
    return said


def shown(name: str, value: object) -> str:
    """A default as a person reads it: sizes in binary units, empty text as nothing."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and "bytes" in name:
        for size, unit in SIZES:
            if value and value % size == 0:
                return f"{value // size} {unit}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def first_paragraph(kind: type[Any]) -> str:
    """The first paragraph of a docstring."""
    return one_line((inspect.getdoc(kind) or "").split("\n\n")[0])


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """All of them, in the order of their definition."""
    for sub in kind.__subclasses__():
        if sub.__module__ == client_errors.__name__:
            if sub is not client_errors.ServerRefusal:
                yield sub
            yield from _subclasses(sub)
