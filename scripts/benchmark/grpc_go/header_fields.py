"""Encodes header fields as Go's HPACK does.

Not by `hpack.Encoder`: Go codes a text by Huffman only where that is shorter, and takes the last
entry of the static table that has a name, where hpack takes the first.
"""

from hpack.hpack import encode_integer
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

_LAST_OF = {b":path": 5, b":method": 3, b":scheme": 7}


class HeaderEncoder:
    """The encoder of one connection; each field it has sent is one byte the next time."""

    def __init__(self) -> None:
        self._table = HeaderTable()
        self._huffman = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

    def field(self, name: bytes, value: bytes) -> bytes:
        """One field, put into the table when it is not there."""
        found = self._table.search(name, value)
        if found is not None and found[2] is not None:
            return _integer(found[0], 7, 0x80)
        self._table.add(name, value)
        if found is None:
            return b"\x40" + self._text(name) + self._text(value)
        return _integer(_LAST_OF.get(name, found[0]), 6, 0x40) + self._text(value)

    def _text(self, text: bytes) -> bytes:
        coded = self._huffman.encode(text)
        if len(coded) < len(text):
            return _integer(len(coded), 7, 0x80) + coded
        return _integer(len(text), 7, 0) + text


def _integer(value: int, bits: int, flags: int) -> bytes:
    """A number that begins in the last bits of a byte whose first ones are `flags`."""
    made = encode_integer(value, bits)
    made[0] |= flags
    return bytes(made)
