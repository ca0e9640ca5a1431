"""Texts of properties and headers, and the encodings that they are made of."""

from schemas.encoding import base36, base64_text, id_list
from schemas.encoding.varint import Malformed
from schemas.handshake import read_create_header
from schemas.message_id import PulsarId, WoodpeckerId
from schemas.properties import batch_header, insert_header, keys
from schemas.properties.batch_mark import read_batch_mark, write_batch_mark
from schemas.properties.broadcast_header import (
    BroadcastHeader,
    HeaderKey,
    read_broadcast_header,
    read_broadcast_id,
    write_broadcast_header,
)
from schemas.properties.keys import BadProperty, Property
from schemas.properties.txn_context import TxnContext, begin_keepalive_ms
from tests.fuzz.choice import Reader, numbered, read_by_first_byte


def check(data: bytes) -> None:
    """A value, or Malformed or BadProperty."""
    read_by_first_byte(data, READERS, (Malformed, BadProperty))


def _of_text(read: "object") -> Reader:
    assert callable(read)
    reader = read

    def of_bytes(data: bytes) -> object:
        return reader(data.decode("utf-8", "replace"))

    return of_bytes


def _keys() -> list[Reader]:
    found = [it for _, it in sorted(vars(keys).items()) if isinstance(it, Property)]
    return [_of_text(it.decode) for it in found]


def _ids(data: bytes) -> None:
    found = id_list.read_ids(data, 2)
    assert id_list.read_ids(id_list.with_ids(data, 2, found), 2) == found


def _batch_header(data: bytes) -> None:
    others, header = batch_header.split_header(data)
    batch_header.insert_shares(data, 3)
    batch_header.delete_shares(data, 3)
    batch_header.with_deletes(header, 1, 2)
    assert batch_header.split_header(batch_header.joined(others, header)) == (others, header)


def _insert_header(data: bytes) -> None:
    insert_header.read_insert_header(data)
    insert_header.assigned(data, 7, 100)
    insert_header.with_rows(data, 3, 100, 7)


READERS: tuple[Reader, ...] = (
    _of_text(read_create_header),
    _of_text(base36.read_base36),
    _of_text(base36.rocksmq_id),
    _of_text(base64_text.read_base64),
    _of_text(PulsarId.read),
    _of_text(WoodpeckerId.read),
    _of_text(read_batch_mark),
    _of_text(read_broadcast_header),
    _of_text(read_broadcast_id),
    _ids,
    _batch_header,
    _insert_header,
    TxnContext.decode,
    begin_keepalive_ms,
    *_keys(),
)

_BROADCAST = BroadcastHeader(7, ("a_1v0",), (HeaderKey(2, "key", True),), ack_sync_up=True)
SEEDS = numbered(
    (
        base64_text.base64_text(b"\x0a\x08\x0a\x04name\x10\x05").encode(),
        b"1y2p0ij32e8e7",
        PulsarId(1, 2, 3, 4, 5).text().encode(),
        write_batch_mark("app", 5, ["a_1v0", "a_1v0", "b_2v1"]).encode(),
        write_broadcast_header(_BROADCAST).encode(),
        b"\x12\x03\x01\x02\x03\x10\x05",
        insert_header.assigned(b"\x08\x01\x12\x04\x08\x02\x10\x03", 7, 100),
        batch_header.joined(b"", b"\x08\x01\x12\x04\x08\x02\x10\x03"),
        b"1:2:client key",
        b"app/5/part/1",
    ),
    len(READERS),
)
