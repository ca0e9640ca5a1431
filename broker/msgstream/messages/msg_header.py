"""Reads the header of a message from its bytes, before its class is known."""

from typing import Final

from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.stream_errors import BadMessage
from schemas.encoding.fields import fields, read_length
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import common

_TYPE: Final = 0x08
_TYPES: Final = {int(it): it for it in MsgType}


def type_of(body: object) -> MsgType:
    """The type in the header, which is the first field of every body. BadMessage without one."""
    if not isinstance(body, bytes):
        raise BadMessage(f"a message must be bytes, not {type(body).__name__}")
    number = 0
    try:
        first, stop = _header(body)
        for tag, value, _ in fields(body, first, stop):
            if tag == _TYPE:
                number = value
                break
    except Malformed as error:
        raise BadMessage(f"the header of a message is malformed: {error}") from None
    found = _TYPES.get(number)
    if found is None:
        raise BadMessage(f"a message has type {number}, which is no MsgType")
    return found


def header_of(body: bytes) -> common.MsgBase:
    """The header. BadMessage for bytes without one."""
    try:
        first, stop = _header(body)
        return common.MsgBase.parse(body[first:stop])
    except BadMessage:
        raise
    except Exception as error:  # noqa: BLE001 - the decoder has no error of its own
        raise BadMessage(f"the header of a message cannot be decoded: {error}") from None


def _header(body: bytes) -> tuple[int, int]:
    if body[:1] != b"\x0a":
        raise BadMessage(f"a body that begins with {body[:8]!r} has no header")
    return read_length(body, 1, len(body))
