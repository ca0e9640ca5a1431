"""Text forms of message ids, of every kind of log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto.common import WalName as Generated
from schemas.message_id import (
    AnyId,
    PulsarId,
    WalName,
    WoodpeckerId,
    message_id_text,
    read_message_id,
)
from tests.schemas import messages

int32s = st.integers(-(2**31), 2**31 - 1)
pulsar_ids = st.builds(PulsarId, messages.int64s, messages.int64s, int32s, int32s, int32s)
woodpecker_ids = st.builds(WoodpeckerId, messages.int64s, messages.int64s)
any_ids: st.SearchStrategy[tuple[WalName, AnyId]] = st.one_of(
    st.tuples(st.just(WalName.ROCKSMQ), messages.int64s),
    st.tuples(st.just(WalName.KAFKA), messages.int64s),
    st.tuples(st.just(WalName.PULSAR), pulsar_ids),
    st.tuples(st.just(WalName.WOODPECKER), woodpecker_ids),
    st.tuples(st.just(WalName.TEST), messages.ticks),
)


@given(any_ids)
def test_ids_of_every_log_come_back(found: tuple[WalName, AnyId]) -> None:
    wal, message_id = found
    assert read_message_id(wal, message_id_text(wal, message_id)) == message_id


@pytest.mark.parametrize(
    ("wal", "text"),
    [
        (WalName.ROCKSMQ, ""),
        (WalName.KAFKA, "!"),
        (WalName.PULSAR, ""),
        (WalName.PULSAR, "CAw="),
        (WalName.PULSAR, "CAwQ"),
        (WalName.WOODPECKER, "x"),
        (WalName.TEST, "z"),
        (WalName.TEST, "18446744073709551616"),
        (WalName.UNKNOWN, "1"),
        (5, "1"),
    ],
)
def test_text_that_is_no_id_is_malformed(wal: int, text: str) -> None:
    with pytest.raises(Malformed):
        read_message_id(wal, text)


def test_woodpecker_ids_are_ordered_by_segment_then_entry() -> None:
    assert WoodpeckerId(1, 9) < WoodpeckerId(2, 0) < WoodpeckerId(2, 1)


def test_logs_have_the_numbers_and_the_texts_of_milvus() -> None:
    assert {int(name) for name in WalName} == {int(name) for name in Generated}
    texts = ["unknown", "rocksmq", "pulsar", "kafka", "woodpecker", "walimplstest"]
    assert [name.text for name in WalName] == texts
