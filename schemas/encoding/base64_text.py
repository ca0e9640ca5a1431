"""Standard padded base64, as Go's StdEncoding writes and reads it; refuses what Go refuses."""

from binascii import Error, a2b_base64, b2a_base64

from schemas.encoding.varint import Malformed


def base64_text(data: bytes) -> str:
    """One line, padded."""
    return b2a_base64(data, newline=False).decode("ascii")


def read_base64(text: str) -> bytes:
    """The bytes; line breaks are passed over.

    Raises Malformed for other alphabets, missing padding and anything after it.
    """
    try:
        return a2b_base64(text.replace("\r", "").replace("\n", ""), strict_mode=True)
    except (Error, ValueError) as error:
        raise Malformed(f"text that is not base64 ({error})", 0) from None
