"""Text forms of message ids of other logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto.common import WalName as Generated
from schemas.message_id import PulsarId, WalName, WoodpeckerId
from tests.schemas import messages

int32s = st.integers(-(2**31), 2**31 - 1)
pulsar_ids = st.builds(PulsarId, messages.int64s, messages.int64s, int32s, int32s, int32s)
woodpecker_ids = st.builds(WoodpeckerId, messages.int64s, messages.int64s)


@given(st.one_of(pulsar_ids, woodpecker_ids))
def test_ids_come_back(message_id: PulsarId | WoodpeckerId) -> None:
    assert type(message_id).read(message_id.text()) == message_id


@pytest.mark.parametrize(
    ("kind", "text"),
    [(PulsarId, ""), (PulsarId, "CAw="), (PulsarId, "CAwQ"), (WoodpeckerId, "x")],
)
def test_text_that_is_no_id_is_malformed(kind: type[PulsarId | WoodpeckerId], text: str) -> None:
    with pytest.raises(Malformed):
        kind.read(text)


def test_woodpecker_ids_are_ordered_by_segment_then_entry() -> None:
    assert WoodpeckerId(1, 9) < WoodpeckerId(2, 0) < WoodpeckerId(2, 1)


def test_logs_have_the_numbers_and_the_texts_of_milvus() -> None:
    assert {int(name) for name in WalName} == {int(name) for name in Generated}
    texts = ["unknown", "rocksmq", "pulsar", "kafka", "woodpecker", "walimplstest"]
    assert [name.text for name in WalName] == texts
