"""Converts a handler's declared message types to bytes and back, for grpclib.

A type declared as `bytes` is passed unchanged: the hot streams get raw messages on a server whose
other services get decoded ones.
"""

from betterproto2 import Message
from grpclib.const import Status
from grpclib.encoding.base import CodecBase, StatusDetailsCodecBase

from schemas.message_bytes import encoded, parsed

WireMessage = Message
"""A generated message class."""


class MessageCodec(CodecBase):
    """`application/grpc` and `application/grpc+proto`; raw bytes or betterproto2 messages."""

    __content_subtype__ = "proto"

    def encode(self, message: WireMessage | bytes, message_type: type) -> bytes:
        """The message's bytes; a message of another type than declared is a programming error."""
        assert isinstance(message, message_type), f"{type(message)} is not {message_type}"
        return message if isinstance(message, bytes) else encoded(message)

    def decode(self, data: bytes, message_type: type[WireMessage | bytes]) -> WireMessage | bytes:
        """The decoded message. Raises what the generated code raises on garbage."""
        if issubclass(message_type, bytes):
            return data
        return parsed(message_type, data)


class RawDetailsCodec(StatusDetailsCodecBase):
    """`GRPCError(status, message, details)` with `details` the bytes of a `google.rpc.Status`."""

    def encode(self, status: Status, message: str | None, details: bytes) -> bytes:
        """The bytes as given; grpclib puts them into `grpc-status-details-bin`."""
        return details

    def decode(self, status: Status, message: str | None, data: bytes) -> bytes:
        """The bytes as received."""
        return data
