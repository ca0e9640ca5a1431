"""`--format`: one line for each message of a batch, as JSON, bytes, hex or from a template.

A batch is written column by column: a step of Python for each message would cost more than to read
it from the log.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import compress
from json import dumps
from json.encoder import encode_basestring as quoted
from typing import Final, TypeVar

from broker.cli.lines.message_columns import (
    TICK_LOGICAL_BITS,
    Column,
    UnknownField,
    column,
)
from broker.cli.lines.message_filter import Mask
from broker.client import MessageBatch

T = TypeVar("T")
Lines = Callable[[MessageBatch, Mask | None], list[bytes]]
"""The lines, without line ends, of the messages that the mask chooses; None chooses all."""

NAMES: Final = ("json", "raw", "hex")
PIECE = re.compile(r"%\{([^}]*)\}|%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class BadFormat(Exception):
    """A format that cannot be used; the text says what to write."""


def message_lines(form: str) -> Lines:
    """The lines of a format: `json`, `raw`, `hex`, or a template with `%{FIELD}`.

    Raises BadFormat.
    """
    if form == "json":
        return _json_lines
    if form == "raw":
        return _column_lines(column("payload"))
    if form == "hex":
        return _column_lines(column("payload:hex"))
    if "%" in form:
        return _template_lines(*_parsed(form))
    raise BadFormat(
        f"{form!r} is not a format; use {', '.join(NAMES)}, or a template such as"
        " '%{key} %{payload}'"
    )


def _column_lines(values: Column) -> Lines:
    def lines(batch: MessageBatch, mask: Mask | None) -> list[bytes]:
        return [it or b"" for it in _picked(values(batch), mask)]

    return lines


def _template_lines(pattern: bytes, columns: list[Column]) -> Lines:
    def lines(batch: MessageBatch, mask: Mask | None) -> list[bytes]:
        rows = zip(*(_picked(values(batch), mask) for values in columns), strict=True)
        return [pattern % tuple([it or b"" for it in row]) for row in rows]

    return lines


def _parsed(template: str) -> tuple[bytes, list[Column]]:
    """The template as a pattern of `bytes %`, and what to put into it."""
    pattern, columns, at = b"", list[Column](), 0
    for piece in PIECE.finditer(template):
        pattern += _literal(template[at : piece.start()])
        at = piece.end()
        field, percent, escape = piece.groups()
        if field is not None:
            columns.append(_column(field))
            pattern += b"%b"
        elif percent is not None:
            if percent != "%":
                raise BadFormat(
                    f"'%{percent}' in the format {template!r} is not a field; write %{{FIELD}},"
                    " such as %{key}, or %% for a percent sign"
                )
            pattern += b"%%"
        elif escape[:1] == "x" and len(escape) == 3:
            pattern += bytes.fromhex(escape[1:]).replace(b"%", b"%%")
        elif escape in ESCAPES:
            pattern += ESCAPES[escape]
        else:
            raise BadFormat(
                f"'\\{escape}' in the format {template!r} is not an escape; use"
                " \\n, \\t, \\r, \\0, \\\\ or \\xHH"
            )
    if not columns:
        raise BadFormat(f"the format {template!r} has no field; write %{{FIELD}}, such as %{{key}}")
    return pattern + _literal(template[at:]), columns


def _literal(text: str) -> bytes:
    return text.encode(errors="surrogateescape").replace(b"%", b"%%")


def _column(field: str) -> Column:
    try:
        return column(field)
    except UnknownField as error:
        raise BadFormat(f"%{{{field}}} cannot be written: {error}") from None


def _json_lines(batch: MessageBatch, mask: Mask | None) -> list[bytes]:
    collection = dumps(batch.collection, ensure_ascii=False)
    found = (batch.ids, batch.ticks, batch.vchannels, batch.types, batch.keys, batch.payloads)
    rows = zip(*(_picked(it, mask) for it in (*found, batch.properties)), strict=True)
    return [
        (
            f'{{"collection": {collection}, "vchannel": {quoted(vchannel)}, "id": {id}, '
            f'"tick": {tick}, "timestamp_ms": {tick >> TICK_LOGICAL_BITS}, "type": {kind}'
            f"{_json_key(key)}, {_json_bytes('payload', payload)}"
            f"{_json_properties(properties)}}}"
        ).encode()
        for id, tick, vchannel, kind, key, payload, properties in rows
    ]


@lru_cache(maxsize=1024)
def _json_key(key: bytes | None) -> str:
    return "" if key is None else f", {_json_bytes('key', key)}"


def _json_bytes(name: str, value: bytes) -> str:
    """Text as it is; other bytes in base64, in a field with the suffix _base64."""
    try:
        return f'"{name}": {quoted(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{b64encode(value).decode()}"'


def _json_properties(properties: Mapping[str, str]) -> str:
    if not properties:
        return ""
    return f', "properties": {dumps(properties, ensure_ascii=False)}'


def _picked(values: Iterable[T], mask: Mask | None) -> Iterable[T]:
    return values if mask is None else compress(values, mask)
