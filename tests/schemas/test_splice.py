"""What a server builds is read by betterproto2 as it was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base36 import base36
from schemas.generated.milvus.proto.common import ImmutableMessage, MsgType, WalName
from schemas.generated.milvus.proto.msg import TimeTickMsg
from schemas.generated.milvus.proto.streaming import ConsumeResponse, ProduceResponse
from schemas.wire import (
    consume_message,
    consume_time_tick,
    produce_error,
    produce_result,
    scan_message,
)
from tests.schemas import messages

terms = st.integers(0, 2**63 - 1)


def delivered(frame: bytes) -> ImmutableMessage:
    consume = ConsumeResponse.parse(frame).consume
    assert consume is not None
    assert consume.consumer_id == 1
    assert consume.message is not None
    return consume.message


def id_of(message: ImmutableMessage) -> str:
    assert message.id is not None
    assert message.id.WAL_name is WalName.RocksMQ
    return message.id.id


def text(number: int) -> str:
    return base36(number).decode()


@given(messages.odd_messages(), messages.ids, messages.ticks, messages.ids, terms)
def test_a_delivery_is_the_message_sent_plus_what_the_server_says(
    odd: tuple[bytes, dict[str, str], bytes], own: int, tick: int, confirmed: int, term: int
) -> None:
    payload, properties, encoded = odd
    stored = scan_message(encoded, 0, len(encoded)).stored
    message = delivered(consume_message(own, tick, confirmed, term, stored))
    kept = {key: value for key, value in properties.items() if key not in messages.SERVER_KEYS}
    confirms = {"_lcs": ""} if confirmed == own else {"_lc": text(confirmed)}
    assert message.payload == payload
    assert message.properties == kept | {"_tt": text(tick), "_wt": text(term)} | confirms
    assert id_of(message) == text(own)


def test_a_message_that_confirms_itself_says_so_without_an_id() -> None:
    message = delivered(consume_message(40, 50, 40, 2, b""))
    assert message.properties == {"_tt": "1e", "_lcs": "", "_wt": "2"}


@given(messages.ids, messages.ticks, messages.ids, terms, st.booleans(), messages.ids)
def test_a_time_tick_is_complete(
    own: int, tick: int, confirmed: int, term: int, persisted: bool, node_id: int
) -> None:
    frame = consume_time_tick(own, tick, confirmed, term, persisted, node_id)
    message = delivered(frame)
    base = TimeTickMsg.parse(message.payload).base
    assert base is not None
    assert (base.msg_type, base.timestamp, base.source_id) == (MsgType.TimeTick, tick, node_id)
    itself = persisted and own == confirmed
    confirms = {"_lcs": ""} if itself else {"_lc": text(confirmed)}
    announced = {} if persisted else {"_np": ""}
    common = {"_t": "1", "_v": "1", "_h": "", "_tt": text(tick), "_wt": text(term)}
    assert message.properties == common | confirms | announced
    assert id_of(message) == text(own)


def test_a_tick_that_is_only_announced_borrows_its_last_confirmed_id() -> None:
    message = delivered(consume_time_tick(9, 77, 9, 2, False, 1))
    assert id_of(message) == "9"
    assert message.properties["_lc"] == "9"
    assert message.properties["_np"] == ""


@given(messages.int64s, messages.ids, messages.ticks, messages.ids)
def test_a_result_is_what_betterproto_reads_and_writes(
    request_id: int, own: int, tick: int, confirmed: int
) -> None:
    frame = produce_result(request_id, own, tick, confirmed)
    produce = ProduceResponse.parse(frame).produce
    assert produce is not None
    result = produce.result
    assert result is not None
    assert result.id is not None
    assert result.last_confirmed_id is not None
    assert (produce.request_id, result.timetick) == (request_id, tick)
    assert (result.id.id, result.id.WAL_name) == (text(own), WalName.RocksMQ)
    confirmed_id = result.last_confirmed_id
    assert (confirmed_id.id, confirmed_id.WAL_name) == (text(confirmed), WalName.RocksMQ)


@pytest.mark.parametrize(("code", "cause"), [(0, ""), (11, "über limit"), (999, "x" * 300)])
@pytest.mark.parametrize("request_id", [0, 1, -1, 2**40])
def test_an_error_is_what_betterproto_reads(request_id: int, code: int, cause: str) -> None:
    produce = ProduceResponse.parse(produce_error(request_id, code, cause)).produce
    assert produce is not None
    assert produce.error is not None
    assert (produce.request_id, produce.error.code, produce.error.cause) == (
        request_id,
        code,
        cause,
    )
