"""Headers of batches in collections: written once for all messages, divided when one is delivered.

A batch is one insert or delete of as many rows as it has messages. A consumer of single messages
must find headers that say one row each, so the rows and bytes of the batch are shared out.
"""

from binascii import b2a_base64
from functools import lru_cache
from typing import Final, NamedTuple

from schemas.encoding.base64_text import read_base64
from schemas.encoding.entries import read_entry
from schemas.encoding.fields import copied, field, fields
from schemas.encoding.id_list import read_ids
from schemas.encoding.varint import varint
from schemas.properties.insert_header import read_insert_header, with_rows

_HEADER: Final = "_h"
_ENTRY: Final = 0x1A
_HEADER_KEY: Final = b"\x0a\x02_h\x12"
_COLLECTION: Final = 0x08
_ROWS_OF_DELETE: Final = 0x10
_REMEMBERED_BYTES_MAX: Final = 256


def insert_header(
    collection_id: int, partition_id: int, segment_id: int, rows: int, size_bytes: int
) -> bytes:
    """A `messages.InsertMessageHeader` of rows in one segment."""
    collection, partition, segment = _ids_of(collection_id, partition_id, segment_id)
    # All batches of a segment differ in these alone.
    counts = b"\x10" + varint(rows) + b"\x18" + varint(size_bytes)
    length = varint(len(partition) + len(counts) + len(segment))
    return b"".join((collection, length, partition, counts, segment))


@lru_cache(maxsize=1024)
def _ids_of(collection_id: int, partition_id: int, segment_id: int) -> tuple[bytes, bytes, bytes]:
    segment = field(0x22, b"\x08" + varint(segment_id))
    return b"\x08" + varint(collection_id) + b"\x12", b"\x08" + varint(partition_id), segment


def partition_property(collection_id: int, partition_id: int) -> bytes:
    """The entry by which a batch names its collection and partition; the log adds the rest."""
    partition = field(0x12, b"\x08" + varint(partition_id))
    return joined(b"", b"\x08" + varint(collection_id) + partition)


def with_deletes(header: bytes, collection_id: int, rows: int) -> bytes:
    """A `messages.DeleteMessageHeader` with these, and otherwise what it says. Raises Malformed."""
    kept = [
        copied(header, tag, first, stop)
        for tag, first, stop in fields(header, 0, len(header))
        if tag not in (_COLLECTION, _ROWS_OF_DELETE)
    ]
    return b"".join((b"\x08", varint(collection_id), b"\x10", varint(rows), *kept))


def split_header(properties: bytes) -> tuple[bytes, bytes]:
    """The entries without `_h`, and the bytes of the header; empty when it is empty or missing.

    Raises Malformed.
    """
    # Batches of a program repeat their properties. Long ones are not kept, to bound the memory.
    return (_remembered if len(properties) <= _REMEMBERED_BYTES_MAX else _split)(properties)


def joined(others: bytes, header: bytes) -> bytes:
    """The entries with this header: the opposite of `split_header`."""
    # Not `write_entry`, which would remember a value that never comes again.
    text = b2a_base64(header, newline=False)
    length = varint(len(text))
    size = varint(len(_HEADER_KEY) + len(length) + len(text))
    return b"".join((others, b"\x1a", size, _HEADER_KEY, length, text))


class Shares(NamedTuple):
    """The properties of the first `larger` messages of a batch, and of the others."""

    first: bytes
    others: bytes
    larger: int

    def of(self, index: int) -> bytes:
        """The properties of message `index`."""
        return self.first if index < self.larger else self.others


@lru_cache(maxsize=64)
def insert_shares(properties: bytes, messages: int) -> Shares:
    """Divide an insert: a row for each message, and bytes that add up. Raises Malformed.

    A header that the log did not write, because the batch is in no collection, stays as it is.
    """
    others, header = split_header(properties)
    partitions = read_insert_header(header).partitions
    if len(partitions) != 1 or not partitions[0].segment_id or partitions[0].rows != messages:
        return Shares(properties, properties, 0)
    size_bytes, larger = divmod(partitions[0].size_bytes, messages)
    first, rest = [
        joined(others, with_rows(header, 1, each)) for each in (size_bytes + 1, size_bytes)
    ]
    return Shares(first, rest, larger)


@lru_cache(maxsize=64)
def delete_shares(properties: bytes, messages: int) -> Shares:
    """Divide a delete: a row for each message. Raises Malformed."""
    others, header = split_header(properties)
    (collection_id, rows) = [read_ids(header, each)[-1:] for each in (1, 2)]
    if collection_id and rows == (messages,):
        properties = joined(others, with_deletes(header, collection_id[0], 1))
    return Shares(properties, properties, 0)


def _split(properties: bytes) -> tuple[bytes, bytes]:
    kept: list[bytes] = []
    text = ""
    for tag, first, stop in fields(properties, 0, len(properties)):
        key, value = read_entry(properties[first:stop]) if tag == _ENTRY else ("", "")
        if key == _HEADER:
            text = value
        else:
            kept.append(copied(properties, tag, first, stop))
    return b"".join(kept), read_base64(text)


_remembered = lru_cache(maxsize=4096)(_split)
