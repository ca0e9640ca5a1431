"""Arrow rows through `tidemark.v1.Log` and `Collections`: checked, stored once, cut to columns."""

import json
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from broker.model.failure import StreamingCode as Code
from schemas.arrow.columns import encode_schema
from schemas.arrow.rows import decode_rows, encode_rows
from schemas.batches import ARROW_ROWS, STORED, Landed, scan_read_response
from schemas.encoding.base64_text import base64_text
from schemas.generated.milvus.proto import messages
from schemas.generated.tidemark import v1
from tests.wire.peer import Peer
from tests.wire.small_broker import SmallBroker
from tests.wire.test_append import batch, opened, refused, told
from tests.wire.test_consume import appended, next_messages
from tests.wire.test_consume import opened as consuming
from tests.wire.test_read import code_of, landed, reading, to_the_end

COLLECTIONS = "/tidemark.v1.Collections/"
ROWS = pa.record_batch({f"c{at}": pa.array([at] * 500, pa.int64()) for at in range(10)})


def of_rows(rows: Any = ROWS, **fields: object) -> v1.AppendRequest:
    return batch(**{"body": encode_rows(rows), "codec": v1.Codec.ARROW, **fields})


async def create(peer: Peer, schema: Any) -> None:
    """The first collection that is created has the vchannel which these tests use."""
    request = v1.CreateCollectionRequest(name="rows", shards=1)
    if schema is not None:
        request.arrow_schema = encode_schema(schema)
    await peer.call(COLLECTIONS + "Create", bytes(request))


@pytest_asyncio.fixture
async def rows(peer: Peer) -> None:
    await create(peer, ROWS.schema)


async def bytes_of(peer: Peer, wanted: v1.ReadOpen) -> tuple[int, Any]:
    """What crosses the wire for a read, and the rows in it."""
    stream = await reading(peer, wanted)
    size, found = 0, None
    while True:
        frame = await stream.receive()
        size += len(frame)
        answer = scan_read_response(frame)
        if answer.batch is not None:
            assert answer.batch.form == ARROW_ROWS
            found = decode_rows(answer.batch.body)
        if answer.end:
            return size, found


async def test_two_columns_of_ten_cross_the_wire_in_less_than_a_quarter_of_the_bytes(
    peer: Peer, rows: None
) -> None:
    (first,) = await landed(peer, of_rows())
    until = first.tick + ROWS.num_rows - 1
    all_bytes, found = await bytes_of(peer, v1.ReadOpen(rows=True, until_tick=until))
    assert found.equals(ROWS)
    wanted = v1.ReadOpen(rows=True, columns=["c7", "c2", "unknown"], until_tick=until)
    some_bytes, found = await bytes_of(peer, wanted)
    assert found.equals(ROWS.select(["c2", "c7"]))
    assert 4 * some_bytes < all_bytes


async def test_a_reader_of_rows_sees_nothing_else_and_knows_where_it_is(
    peer: Peer, rows: None
) -> None:
    # Milvus's protocol knows no schemas: it can put a message among the rows.
    delete = base64_text(bytes(messages.DeleteMessageHeader(collection_id=100, rows=1)))
    (first,) = await appended(peer, b"before", _t="3", _h=delete)
    await landed(peer, of_rows())
    (last,) = await appended(peer, b"after", _t="3", _h=delete)
    stream = await reading(peer, v1.ReadOpen(rows=True, until_tick=last.tick))
    (found,), end = await to_the_end(stream)
    assert first.message_id < found.message_id
    assert (found.first, found.end) == (0, 500)
    assert end.closed_tick == last.tick
    stream = await reading(peer, v1.ReadOpen(until_tick=last.tick))
    # First the creation of the collection, on the control channel, which is on this pchannel.
    assert [it.form for it in (await to_the_end(stream))[0]] == [
        STORED,
        STORED,
        ARROW_ROWS,
        STORED,
    ]


async def test_a_milvus_consumer_gets_each_row_as_json_with_its_own_id_and_tick(
    broker: SmallBroker, peer: Peer, rows: None
) -> None:
    (first,) = await landed(peer, of_rows())
    # Behind the creations of the collection and of a segment.
    found = (await next_messages(await consuming(peer), 502))[2:]
    assert [it.message_id for it in found] == [first.message_id + at for at in range(500)]
    assert [it.tick for it in found] == [first.tick + at for at in range(500)]
    assert json.loads(found[499].payload) == {f"c{at}": at for at in range(10)}
    assert found[0].properties["tidemark.schema"] == "1"


async def test_a_repeat_of_numbered_rows_is_stored_once(peer: Peer, rows: None) -> None:
    stream = await opened(peer)
    numbered = of_rows(producer="p", sequence=0)
    first, again, following = await told(
        stream, numbered, numbered, of_rows(producer="p", sequence=500)
    )
    assert isinstance(first, Landed)
    assert again == first
    assert isinstance(following, Landed)
    assert following.message_id >= first.message_id + 500


BIG = pa.record_batch({f"c{at}": pa.array([at] * 12_000, pa.int64()) for at in range(10)})
HUGE = pa.record_batch({f"c{at}": pa.array([at] * 110_000, pa.int64()) for at in range(10)})

BAD = {
    "no body": (of_rows(body=b""), Code.INVALID_ARGUMENT, "0 bytes end"),
    "garbage": (of_rows(body=b"garbage" * 20), Code.INVALID_ARGUMENT, "no Arrow message"),
    "cut short": (of_rows(body=encode_rows(BIG)[:-9]), Code.INVALID_ARGUMENT, "record batch has"),
    "sizes beside it": (of_rows(sizes=[1]), Code.INVALID_ARGUMENT, "neither sizes nor keys"),
    "keys beside it": (of_rows(keys=b"k"), Code.INVALID_ARGUMENT, "neither sizes nor keys"),
    "deletes": (of_rows(type=3), Code.INVALID_ARGUMENT, "type 3"),
    "elsewhere": (of_rows(vchannel="p_1v0"), Code.INVALID_ARGUMENT, "'p_1v0'"),
    "of no collection": (
        of_rows(vchannel="by-dev-rootcoord-dml_0_vcchan"),
        Code.INVALID_ARGUMENT,
        "not of a collection",
    ),
    "of one that is not there": (
        of_rows(vchannel="by-dev-rootcoord-dml_0_7v0"),
        Code.INVALID_ARGUMENT,
        "collection 7 has no schema",
    ),
    "our own property": (
        of_rows(properties={"tidemark.schema": "9"}),
        Code.INVALID_ARGUMENT,
        "reserved",
    ),
    "too large": (of_rows(HUGE), Code.UNRECOVERABLE, "split"),
    "other columns": (
        of_rows(ROWS.drop_columns(["c3"])),
        Code.SCHEMA_VERSION_MISMATCH,
        "'c3' (int64) is missing",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_rows_are_refused_alone_with_what_is_wrong(
    peer: Peer, rows: None, name: str
) -> None:
    request, code, words = BAD[name]
    answer = await refused(peer, request, of_rows())
    assert (Code(answer.code), words in answer.cause) == (code, True), answer


async def test_a_body_that_is_checked_in_a_thread_keeps_its_place(peer: Peer, rows: None) -> None:
    stream = await opened(peer)
    answers = await told(stream, of_rows(BIG), of_rows(), of_rows(BIG))
    ids = [it.message_id for it in answers if isinstance(it, Landed)]
    assert len(ids) == 3
    assert ids == sorted(ids)


async def test_a_column_that_was_just_added_may_be_written(peer: Peer, rows: None) -> None:
    stream = await opened(peer)
    wider = ROWS.append_column("new", pa.array(["x"] * 500))
    await told(stream, of_rows())  # now the server remembers the schema
    request = v1.AddColumnsRequest(
        name="rows", arrow_columns=encode_schema(pa.schema([("new", pa.string())]))
    )
    changed = v1.Collection.parse(await peer.call(COLLECTIONS + "AddColumns", bytes(request)))
    assert changed.schema is not None
    assert changed.schema.widths == [10, 11]
    assert [type(it) for it in await told(stream, of_rows(wider), of_rows())] == [Landed] * 2


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (v1.ReadOpen(columns=["a"]), "set rows"),
        (v1.ReadOpen(rows=True, columns=["a"] * 1025), "1025 columns"),
    ],
)
async def test_a_read_of_columns_that_cannot_be_is_refused(
    peer: Peer, wanted: v1.ReadOpen, words: str
) -> None:
    found, cause = await code_of(peer, wanted)
    assert (found, words in cause) == (Code.INVALID_ARGUMENT, True), cause
