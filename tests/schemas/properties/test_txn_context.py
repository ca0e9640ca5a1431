"""Transaction contexts, against betterproto2."""

import pytest
from hypothesis import given

from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import messages as generated
from schemas.properties.txn_context import TxnContext
from tests.schemas import messages


@given(messages.int64s, messages.int64s)
def test_a_context_is_what_betterproto_writes(txn_id: int, keepalive_ms: int) -> None:
    context = TxnContext(txn_id, keepalive_ms)
    expected = generated.TxnContext(txn_id=txn_id, keepalive_milliseconds=keepalive_ms)
    assert context.encode() == bytes(expected)
    assert TxnContext.decode(context.encode()) == context


def test_a_damaged_context_is_malformed() -> None:
    with pytest.raises(Malformed):
        TxnContext.decode(b"\x08")
