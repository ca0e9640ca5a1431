"""The client's side of the hot streams, against betterproto2 and against garbage."""

import contextlib
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.fields import field
from schemas.generated.milvus.proto import common, messages, streaming
from schemas.wire import (
    Closed,
    Consumed,
    Created,
    Malformed,
    Produced,
    ProduceFailed,
    VChannelCreated,
    VChannelRefused,
    base36,
    consume_message,
    consume_time_tick,
    message,
    produce_error,
    produce_request,
    produce_result,
    scan_consume_response,
    scan_message,
    scan_produce_response,
)
from tests.schemas import messages as random

TICK = 464629456699392005


@given(random.int64s, random.payloads, random.properties)
def test_a_request_is_what_betterproto_would_send(
    request_id: int, payload: bytes, properties: dict[str, str]
) -> None:
    sent = streaming.ProduceRequest(
        produce=streaming.ProduceMessageRequest(
            request_id=request_id,
            message=messages.Message(payload=payload, properties=properties),
        )
    )
    frame = produce_request(request_id, message(payload, properties))
    assert streaming.ProduceRequest.parse(frame) == sent


@given(random.int64s, random.ids, random.ticks, random.ids)
def test_a_result_comes_back_as_it_was_built(
    request_id: int, own: int, tick: int, confirmed: int
) -> None:
    frame = produce_result(request_id, own, tick, confirmed)
    assert scan_produce_response(frame) == Produced(request_id, own, tick, confirmed)


@given(random.int64s, st.integers(0, 999), st.text())
def test_a_refusal_comes_back_as_it_was_built(request_id: int, code: int, cause: str) -> None:
    frame = produce_error(request_id, code, cause)
    assert scan_produce_response(frame) == ProduceFailed(request_id, code, cause)


def test_a_result_inside_a_transaction_has_its_context() -> None:
    context = messages.TxnContext(txn_id=4, keepalive_milliseconds=10000)
    own = common.MessageId(id="a", WAL_name=common.WalName.RocksMQ)
    result = streaming.ProduceMessageResponseResult(
        id=own, timetick=9, last_confirmed_id=own, txn_context=context
    )
    answer = streaming.ProduceMessageResponse(request_id=1, result=result)
    scanned = scan_produce_response(bytes(streaming.ProduceResponse(produce=answer)))
    assert scanned == Produced(1, 10, 9, 10, bytes(context))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            streaming.ProduceResponse(
                create=streaming.CreateProducerResponse(wal_name="rocksmq", producer_server_id=-1)
            ),
            Created("rocksmq", -1),
        ),
        (streaming.ProduceResponse(close=streaming.CloseProducerResponse()), Closed()),
        (streaming.ProduceResponse(), None),
    ],
)
def test_other_produce_responses_are_told_apart(
    response: streaming.ProduceResponse, expected: object
) -> None:
    assert scan_produce_response(bytes(response)) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            streaming.ConsumeResponse(create=streaming.CreateConsumerResponse(wal_name="rocksmq")),
            Created("rocksmq", 0),
        ),
        (
            streaming.ConsumeResponse(
                create_vchannel=streaming.CreateVChannelConsumerResponse(consumer_id=1)
            ),
            VChannelCreated(1),
        ),
        (
            streaming.ConsumeResponse(
                create_vchannel=streaming.CreateVChannelConsumerResponse(
                    error=streaming.StreamingError(code=streaming.StreamingCode.INNER, cause="no")
                )
            ),
            VChannelRefused(7, "no"),
        ),
        (streaming.ConsumeResponse(close=streaming.CloseConsumerResponse()), Closed()),
        (
            streaming.ConsumeResponse(
                close_vchannel=streaming.CloseVChannelConsumerResponse(consumer_id=1)
            ),
            None,
        ),
        (streaming.ConsumeResponse(), None),
    ],
)
def test_other_consume_responses_are_told_apart(
    response: streaming.ConsumeResponse, expected: object
) -> None:
    assert scan_consume_response(bytes(response)) == expected


@given(random.odd_messages(), random.ids, random.ticks, random.ids)
def test_a_delivery_comes_back_as_betterproto_reads_it(
    odd: tuple[bytes, dict[str, str], bytes], own: int, tick: int, confirmed: int
) -> None:
    stored = scan_message(odd[2], 0, len(odd[2])).stored
    frame = consume_message(own, tick, confirmed, 3, stored)
    consume = streaming.ConsumeResponse.parse(frame).consume
    assert consume is not None
    assert consume.message is not None
    consumed = scan_consume_response(frame)
    assert consumed == Consumed(own, consume.message.payload, consume.message.properties)
    assert isinstance(consumed, Consumed)
    assert (consumed.tick, consumed.last_confirmed_id) == (tick, confirmed)


@given(random.odd_messages(), random.ids, st.data())
def test_a_delivery_in_any_form_is_read_like_the_usual_one(
    odd: tuple[bytes, dict[str, str], bytes], own: int, data: st.DataObject
) -> None:
    payload, properties, _ = odd
    stored = bytes(common.ImmutableMessage(payload=payload, properties=properties))
    own_id = common.MessageId(id=base36(own).decode(), WAL_name=common.WalName.Kafka)
    parts = [stored, field(0x0A, bytes(own_id)), data.draw(random.unknown_fields())]
    immutable = b"".join(data.draw(st.permutations(parts)))
    outer = [b"\x08\x01", data.draw(random.odd_lengths(0x12, immutable))]
    frame = field(0x12, b"".join(data.draw(st.permutations(outer))))
    assert scan_consume_response(frame) == Consumed(own, payload, properties)


@given(random.int64s, random.ids, random.ticks, random.ids, st.data())
def test_an_answer_in_any_form_is_read_like_the_usual_one(
    request_id: int, own: int, tick: int, confirmed: int, data: st.DataObject
) -> None:
    produce = streaming.ProduceResponse.parse(
        produce_result(request_id, own, tick, confirmed)
    ).produce
    assert produce is not None
    assert produce.result is not None
    extra = data.draw(random.unknown_fields())
    result = data.draw(st.permutations([bytes(produce.result), extra]))
    number = data.draw(random.odd_varints(st.just(request_id % 2**64)))
    parts = [b"\x08" + number, field(0x12, b"".join(result)), extra]
    frame = field(0x12, b"".join(data.draw(st.permutations(parts))))
    assert scan_produce_response(frame) == Produced(request_id, own, tick, confirmed)


@given(random.unknown_fields())
def test_fields_of_a_later_version_are_passed_over(later: bytes) -> None:
    created = field(0x0A, later + field(0x0A, b"rocksmq") + later)
    error = field(0x1A, later + b"\x08\x07" + later)
    assert scan_produce_response(created) == Created("rocksmq", 0)
    assert scan_produce_response(field(0x12, b"\x08\x05" + error)) == ProduceFailed(5, 7, "")
    assert scan_consume_response(field(0x1A, later + b"\x08\x01")) == VChannelCreated(1)


def test_a_time_tick_is_recognised() -> None:
    consumed = scan_consume_response(consume_time_tick(7, TICK, 7, 1, False, 1))
    assert isinstance(consumed, Consumed)
    assert consumed.properties["_t"] == "1"
    assert (consumed.tick, consumed.last_confirmed_id) == (TICK, 7)


def test_bytes_of_a_tick_inside_of_another_property_are_not_its_tick() -> None:
    told = b"\x1a\x0b\x0a\x03_tt\x12\x04abcd"
    for around in (told, b"x" + told, told + b"x", told[2:], told[2:-1]):
        properties = {"_vc": "v", "note": around.decode(), "_t": "2"}
        body = message(b"p", properties)
        frame = consume_message(9, TICK, 9, 3, scan_message(body, 0, len(body)).stored)
        behind = frame[: -len(told)] + told[:2] + frame[-len(told) :]
        for each in (frame, behind):
            consume = None
            with contextlib.suppress(Exception):
                consume = streaming.ConsumeResponse.parse(each).consume
            if consume is None or consume.message is None:
                continue
            found = scan_consume_response(each)
            assert isinstance(found, Consumed)
            assert found.properties == consume.message.properties


def test_the_last_of_two_ticks_counts_and_a_damaged_one_is_malformed() -> None:
    body = message(b"p", {"_vc": "v", "_t": "2"})
    stored = scan_message(body, 0, len(body)).stored + b"\x1a\x08\x0a\x03_tt\x12\x01z"
    found = scan_consume_response(consume_message(9, TICK, 9, 3, stored))
    assert isinstance(found, Consumed)
    assert found.tick == TICK
    good = consume_message(9, TICK, 9, 3, stored)
    at = good.rindex(b"_tt")
    for bad in (b"\xff", b"\xc3"):
        damaged = good[: at + 6] + bad + good[at + 7 :]
        with pytest.raises(Malformed, match="UTF-8"):
            scan_consume_response(damaged)


def test_a_value_that_looks_like_the_tick_behind_it_is_a_value() -> None:
    body = message(b"p", {"_vc": "v", "_t": "2"})
    stored = scan_message(body, 0, len(body)).stored
    value = b"\x1a\x08\x0a\x03_tt\x12\x01z"
    frame = consume_message(9, TICK, 9, 3, stored)
    for rest in (b"", b"more"):
        entry = field(0x1A, field(0x0A, b"mine") + field(0x12, value + rest))
        found = scan_consume_response(_with_entry(frame, entry))
        assert isinstance(found, Consumed)
        assert found.tick == TICK
        assert found.properties["mine"] == (value + rest).decode()


def _with_entry(frame: bytes, entry: bytes) -> bytes:
    consume = streaming.ConsumeResponse.parse(frame).consume
    assert consume is not None
    assert consume.message is not None
    return field(0x12, b"\x08\x01" + field(0x12, bytes(consume.message) + entry))


def test_properties_that_messages_repeat_are_read_once() -> None:
    frames = []
    for number in range(300):
        body = message(b"%d" % number * (1 + number % 3), {"_t": "2", "_v": "1", "_vc": "once"})
        stored = scan_message(body, 0, len(body)).stored
        frames.append(consume_message(5000 + number, TICK + number, 5000 + number, 3, stored))
    read = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal read
        read += event == "call" and frame.f_code.co_name == "read_entry"

    sys.setprofile(count)
    try:
        found = [scan_consume_response(it) for it in frames]
    finally:
        sys.setprofile(None)
    assert read <= 6
    assert [it.tick for it in found if isinstance(it, Consumed)] == [
        TICK + number for number in range(300)
    ]
    first, second = found[0], found[1]
    assert isinstance(first, Consumed)
    assert isinstance(second, Consumed)
    first.properties["mine"] = "changed"
    assert "mine" not in second.properties


def test_usual_answers_are_read_without_looking_for_fields() -> None:
    places = [(5000 + n, TICK + n, 5000 + n * (n % 2)) for n in range(1, 300)]
    answers = [produce_result(number, *place) for number, place in enumerate(places)]
    looked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code.co_name == "fields"

    sys.setprofile(count)
    try:
        found = [scan_produce_response(it) for it in answers]
    finally:
        sys.setprofile(None)
    assert looked == 0
    assert found == [Produced(number, *place) for number, place in enumerate(places)]


def test_a_delivery_without_its_tick_says_so_when_asked() -> None:
    consumed = Consumed(1, b"", {})
    with pytest.raises(Malformed):
        _ = consumed.tick
    with pytest.raises(Malformed):
        _ = consumed.last_confirmed_id


@pytest.mark.parametrize("wal", [0, 2, 4])
def test_an_id_of_another_kind_of_log_is_refused(wal: int) -> None:
    own = field(0x0A, field(0x0A, b"1") + bytes((0x10, wal)))
    with pytest.raises(Malformed, match=f"kind {wal}"):
        scan_consume_response(field(0x12, b"\x08\x01" + field(0x12, own)))


def test_an_answer_with_neither_result_nor_error_is_malformed() -> None:
    with pytest.raises(Malformed, match="request 5"):
        scan_produce_response(field(0x12, b"\x08\x05"))


good_frames = st.one_of(
    st.builds(produce_result, random.int64s, random.ids, random.ticks, random.ids),
    st.builds(produce_error, random.int64s, st.integers(0, 16), st.text(max_size=9)),
    st.builds(consume_message, random.ids, random.ticks, random.ids, random.ids, st.binary()),
    st.binary(max_size=40),
)


@given(good_frames, st.data())
def test_damaged_answers_are_malformed_and_nothing_worse(good: bytes, data: st.DataObject) -> None:
    frame = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3)) if frame else 0):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    for scan in (scan_produce_response, scan_consume_response):
        assert 0 <= random.offset_of_fault(scan, cut) <= len(cut)
