"""The classes of messages, and the types that they have."""

from typing import Any

import pytest

from broker.msgstream import (
    BadMessage,
    CreateCollectionMsg,
    CreatePartitionMsg,
    DataNodeTtMsg,
    DeleteMsg,
    DropCollectionMsg,
    DropPartitionMsg,
    EncodedMsg,
    InsertMsg,
    LoadBalanceSegmentsMsg,
    MsgPosition,
    QueryNodeStatsMsg,
    RetrieveMsg,
    RetrieveResultMsg,
    SearchMsg,
    SearchResultMsg,
    SegmentStatisticsMsg,
    TimeTickMsg,
)
from broker.msgstream.messages.body_msg import BodyMsg, header
from broker.msgstream.messages.msg_header import header_of, type_of
from broker.msgstream.messages.msg_type import MsgType
from schemas.generated.milvus.proto import common, msg, schema
from schemas.generated.tidemark import v1

NUMBERS = {
    0,
    *range(100, 111),
    *range(200, 207),
    *range(250, 256),
    *range(300, 303),
    *range(400, 403),
    *range(500, 512),
    600,
    *range(1200, 1209),
}
TIMELESS = (QueryNodeStatsMsg, SegmentStatisticsMsg, DataNodeTtMsg)
CLASSES: list[type[BodyMsg[Any]]] = [
    CreateCollectionMsg,
    CreatePartitionMsg,
    DropCollectionMsg,
    DropPartitionMsg,
    LoadBalanceSegmentsMsg,
    RetrieveMsg,
    RetrieveResultMsg,
    SearchMsg,
    SearchResultMsg,
    TimeTickMsg,
    *TIMELESS,
]


def test_there_are_the_53_types_of_early_milvus_with_their_numbers() -> None:
    assert {int(it) for it in MsgType} == NUMBERS
    assert len(MsgType) == 53
    assert (MsgType.INSERT, MsgType.TIME_TICK, MsgType.REQUEST_TSO) == (400, 1200, 1204)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda it: it.__name__)
def test_a_message_comes_back_from_its_bytes_with_its_header(kind: type[BodyMsg[Any]]) -> None:
    sent = kind(kind.body_type(base=header(77, msg_id=5, source_id=9)))
    sent.set_trace_ctx({"traceparent": "00-1-2-03"})
    raw = sent.marshal()
    assert type_of(raw) == kind.kind
    got = kind.unmarshal(raw)
    assert got == sent
    assert (got.type, got.id, got.source_id) == (kind.kind, 5, 9)
    assert got.trace_ctx == {"traceparent": "00-1-2-03"}
    assert (got.begin_ts, got.end_ts) == ((0, 0) if kind in TIMELESS else (77, 77))


def test_a_message_with_rows_spans_their_timestamps() -> None:
    sent = InsertMsg.of_rows([b"a", b"b"], row_ids=[1, 2], timestamps=[9, 7], hash_keys=[3, 4])
    got = InsertMsg.unmarshal(sent.marshal())
    assert (got.begin_ts, got.end_ts, got.rows) == (7, 9, [b"a", b"b"])
    assert not got.hash_keys  # these do not travel
    assert got.position is None
    empty = DeleteMsg.of_keys([], timestamps=[], hash_keys=[])
    assert (empty.begin_ts, empty.end_ts) == (0, 0)


def test_keys_to_delete_are_integers_or_strings() -> None:
    keys = msg.DeleteRequest(
        timestamps=[4, 5], primary_keys=schema.IDs(str_id=schema.StringArray(data=["x", "y"]))
    )
    texts = DeleteMsg(keys, hash_keys=[1, 2])
    assert texts.keys == ["x", "y"]
    assert texts.picked(1).keys == ["y"]
    numbers = msg.DeleteRequest(
        timestamps=[4], primary_keys=schema.IDs(int_id=schema.LongArray(data=[8]))
    )
    assert DeleteMsg(numbers, hash_keys=[1]).picked(0).keys == [8]
    assert DeleteMsg(msg.DeleteRequest(primary_keys=schema.IDs())).keys == []
    assert DeleteMsg.of_keys([6, 7], timestamps=[1, 2], hash_keys=[1, 2]).picked(1).keys == [7]


def test_one_row_of_a_message_keeps_its_header_with_the_timestamp_of_the_row() -> None:
    sent = InsertMsg.of_rows(
        [b"a", b"b"],
        row_ids=[1, 2],
        timestamps=[7, 9],
        hash_keys=[3, 4],
        base=header(9, msg_id=5, source_id=6),
        collection_name="c",
    )
    sent.set_trace_ctx({"traceparent": "t"})
    one = sent.picked(0)
    assert (one.id, one.source_id, one.begin_ts) == (5, 6, 7)
    assert (one.rows, one.hash_keys, one.body.collection_name) == ([b"a"], [3], "c")
    assert one.trace_ctx == {"traceparent": "t"}


def test_an_encoded_message_is_forwarded_as_it_is() -> None:
    raw = TimeTickMsg.at(44, source_id=3).marshal()
    kept = EncodedMsg(raw, hash_keys=[1])
    assert kept.marshal() is raw
    assert (kept.type, kept.begin_ts, kept.end_ts, kept.source_id) == (1200, 44, 44, 3)
    assert (kept.id, dict(kept.trace_ctx)) == (0, {})
    kept.set_position(MsgPosition("c", b"x"))
    with pytest.raises(BadMessage, match="takes no trace"):
        kept.set_trace_ctx({})


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("text", "must be bytes, not str"),
        (b"", "has no header"),
        (b"plain bytes", "has no header"),
        (b"\x0a\x05\x08", "malformed"),
        (b"\x0a\x02\x08\x07", "type 7, which is no MsgType"),
        (SearchMsg(v1.SearchBody()).marshal(), "SEARCH is not of type TIME_TICK"),
        (TimeTickMsg.at(5).marshal() + b"\x12\xff", "TIME_TICK cannot be decoded"),
    ],
)
def test_bytes_that_are_no_message_are_refused_by_what_is_wrong(raw: object, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        TimeTickMsg.unmarshal(raw)


def test_a_message_that_is_cut_off_is_refused() -> None:
    raw = SearchMsg(v1.SearchBody(base=common.MsgBase(timestamp=5), query=b"vector")).marshal()
    for end in range(len(raw) - len("vector"), len(raw)):
        with pytest.raises(BadMessage, match="cannot be decoded"):
            SearchMsg.unmarshal(raw[:end])


def test_a_broken_header_is_refused() -> None:
    with pytest.raises(BadMessage, match="has no header"):
        header_of(b"xyz")
    with pytest.raises(BadMessage, match="cannot be decoded"):
        header_of(b"\x0a\x02\x32\xff")


def test_a_body_with_the_header_of_another_type_is_refused() -> None:
    other = TimeTickMsg.at(5).body.base
    with pytest.raises(BadMessage, match=r"type 1200 is not of type SEARCH \(500\)"):
        SearchMsg(v1.SearchBody(base=other))
