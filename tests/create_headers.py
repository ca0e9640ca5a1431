"""The header that Milvus's clients open a stream with; the broker only reads it."""

from schemas.encoding.base64_text import base64_text
from schemas.encoding.varint import varint
from schemas.handshake import CreateHeader


def create_header(header: CreateHeader) -> str:
    """The value of a `create-producer` or `create-consumer` header."""
    name = header.pchannel.encode()
    info = b"".join(
        (
            b"\x0a" + varint(len(name)) + name if name else b"",
            b"\x10" + varint(header.term) if header.term else b"",
            b"\x18" + varint(header.access_mode) if header.access_mode else b"",
        )
    )
    return base64_text(b"\x0a" + varint(len(info)) + info)
