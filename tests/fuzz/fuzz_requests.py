"""Messages of the generated classes: every request of every service, and what is stored of them."""

import inspect
from dataclasses import fields
from types import ModuleType
from typing import Any, cast

from betterproto2 import Message

from schemas.encoding.varint import Malformed
from schemas.generated.grpc.health import v1 as health
from schemas.generated.milvus.proto import messages, msg, schema, streaming
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded, parsed

_MODULES: tuple[ModuleType, ...] = (v1, streaming, messages, msg, schema, health)


def _kinds() -> list[type[Message]]:
    found = [kind for module in _MODULES for _, kind in inspect.getmembers(module, _is_message)]
    return sorted(set(found), key=lambda it: (it.__module__, it.__name__))


def _is_message(it: object) -> bool:
    return isinstance(it, type) and issubclass(it, Message) and it is not Message


KINDS = _kinds()


def check(data: bytes) -> None:
    """Malformed, or a message that is written and read again without a change."""
    if len(data) < 2:
        return
    kind = KINDS[int.from_bytes(data[:2], "big") % len(KINDS)]
    try:
        found = parsed(kind, data[2:])
    except (Malformed, UnicodeDecodeError):
        return
    once = encoded(found)
    assert encoded(parsed(kind, once)) == once


def _seed(number: int, kind: type[Message]) -> bytes:
    """A message whose texts, bytes and numbers are set, as far as its fields are plain."""
    values: dict[str, object] = {}
    for field in fields(cast(Any, kind)):
        plain = {"str": "a_1v0", "bytes": b"\x08\x01", "int": 5, "bool": True}
        if str(field.type) in plain:
            values[field.name] = plain[str(field.type)]
    try:
        return number.to_bytes(2, "big") + encoded(kind(**values))
    except (TypeError, ValueError):
        return number.to_bytes(2, "big")


SEEDS = tuple(_seed(number, kind) for number, kind in enumerate(KINDS))
