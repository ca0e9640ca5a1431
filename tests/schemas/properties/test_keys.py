"""Every property key: values come back, bad text is named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.properties import keys
from schemas.properties.keys import (
    BadProperty,
    Flag,
    IdempotencyKey,
    Property,
    last_confirmed,
)
from schemas.properties.txn_context import TxnContext
from tests.schemas import messages

BYTES = (
    keys.HEADER,
    keys.BROADCAST,
    keys.REPLICATE,
    keys.CIPHER,
    keys.TRACE,
    keys.ROW_KEY,
)
FLAGS = (
    keys.LAST_CONFIRMED_SELF,
    keys.NOT_PERSISTED,
    keys.PCHANNEL_LEVEL,
    keys.NOT_REPLICATED,
)
NUMBERS: tuple[tuple[Property[int], int], ...] = (
    (keys.TYPE, 2**31 - 1),
    (keys.VERSION, 2**31 - 1),
    (keys.TIME_TICK, 2**64 - 1),
    (keys.BARRIER_TICK, 2**64 - 1),
    (keys.WAL_TERM, 2**63 - 1),
    (keys.LAST_CONFIRMED, 2**63 - 1),
    (keys.DELIVER_AT, 2**63 - 1),
    (keys.DELIVER_TTL, 2**63 - 1),
    (keys.DELIVER_ID, 2**63 - 1),
)


@pytest.mark.parametrize("prop", BYTES)
@given(value=st.binary())
def test_bytes_come_back(prop: Property[bytes], value: bytes) -> None:
    assert prop.need(prop.entry(value)) == value


@pytest.mark.parametrize(("prop", "largest"), NUMBERS)
@given(data=st.data())
def test_numbers_come_back(prop: Property[int], largest: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, largest))
    assert prop.need(prop.entry(value)) == value


@given(messages.int64s, messages.int64s)
def test_transaction_contexts_come_back(txn_id: int, keepalive_ms: int) -> None:
    context = TxnContext(txn_id, keepalive_ms)
    assert keys.TXN.need(keys.TXN.entry(context)) == context


@given(st.integers(1, 3), st.integers(0, 2**62), st.text())
def test_idempotency_keys_come_back(domain: int, scope_id: int, client_key: str) -> None:
    key = IdempotencyKey(domain, scope_id, client_key)
    assert keys.IDEMPOTENCY.need(keys.IDEMPOTENCY.entry(key)) == key


def test_a_vchannel_is_itself() -> None:
    assert keys.VCHANNEL.need({"_vc": "a_1v0"}) == "a_1v0"


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_there_or_not(flag: Flag) -> None:
    assert flag.entry() == {flag.key: ""}
    assert flag.read(flag.entry())
    assert not flag.read({})


@pytest.mark.parametrize(
    ("prop", "text"),
    [
        (keys.TYPE, ""),
        (keys.TYPE, "-2"),
        (keys.TYPE, "2147483648"),
        (keys.VERSION, "one"),
        (keys.TIME_TICK, "+1"),
        (keys.WAL_TERM, "3w5e11264sgsf"),
        (keys.LAST_CONFIRMED, "1 "),
        (keys.HEADER, "CGQ"),
        (keys.ROW_KEY, "a2V5 "),
        (keys.TXN, "gA=="),
        (keys.IDEMPOTENCY, "4:1:x"),
        (keys.IDEMPOTENCY, "1:x"),
        (keys.IDEMPOTENCY, "1:-1:x"),
    ],
)
def test_bad_text_is_named_with_its_key(prop: Property[Any], text: str) -> None:
    with pytest.raises(BadProperty) as caught:
        prop.read({prop.key: text})
    assert (caught.value.key, caught.value.value) == (prop.key, text)
    assert prop.key in str(caught.value)


def test_a_missing_property_is_none_or_named_when_needed() -> None:
    assert keys.TYPE.read({}) is None
    with pytest.raises(BadProperty, match="property _t is missing"):
        keys.TYPE.need({})


def test_confirming_itself_wins_over_an_id() -> None:
    assert last_confirmed({"_lc": "1", "_lcs": ""}, 9) == 9
    assert last_confirmed({"_lc": "z"}, 99) == 35
    with pytest.raises(BadProperty, match="_lc is missing"):
        last_confirmed({}, 9)


OURS = {"tidemark.batch", "tidemark.key", "tidemark.schema", "tidemark.stage", "tidemark.stage_run"}


def test_no_two_properties_share_a_key() -> None:
    found = [p.key for p in vars(keys).values() if isinstance(p, Property | Flag)]
    assert len(found) == len(set(found)) == 28
    reserved = [key for key in found if key.startswith(keys.RESERVED_PREFIX)]
    assert set(found) - set(reserved) == OURS
