"""Which types a log takes, by number."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.core.log.carried_types import TYPE_MAX, client_refusal, is_carried, is_later
from broker.model.failure import StreamingCode
from broker.model.message import EXCLUSIVE_TYPES, KNOWN_TYPES, LOG_STEPS, MessageType


def test_the_log_takes_all_it_knows_but_what_it_writes_itself() -> None:
    assert {kind for kind in KNOWN_TYPES if not is_carried(kind)} == {1, 4, 10, 999}


@example(950)
@example(1901)
@example(1902)
@given(st.integers(1, TYPE_MAX).filter(lambda kind: kind not in KNOWN_TYPES))
def test_a_later_type_is_refused_only_where_steps_of_transactions_are_numbered(kind: int) -> None:
    misunderstood = 900 <= kind < 1000 or kind in LOG_STEPS
    assert is_carried(kind) is is_later(kind) is not misunderstood
    refusal = client_refusal(kind)
    assert (refusal is not None) is misunderstood
    if refusal is not None:
        assert refusal.code is StreamingCode.UNRECOVERABLE
        assert str(kind) in refusal.cause


@pytest.mark.parametrize("kind", [0, -1, TYPE_MAX + 1])
def test_what_is_no_number_of_an_enum_is_not_carried(kind: int) -> None:
    assert not is_carried(kind)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (MessageType.ALTER_WAL, "does not say where it is"),
        (MessageType.ALTER_REPLICATE_CONFIG, "replication between clusters"),
    ],
)
def test_what_would_have_no_effect_is_refused_to_clients_with_what_is_missing(
    kind: MessageType, missing: str
) -> None:
    refusal = client_refusal(kind)
    assert refusal is not None
    assert refusal.code is StreamingCode.UNRECOVERABLE
    assert missing in refusal.cause
    assert is_carried(kind), "a broadcast that an earlier release recorded must still end"


def test_the_ends_of_an_import_are_exclusive() -> None:
    assert {45, 46} <= EXCLUSIVE_TYPES
    assert 44 not in EXCLUSIVE_TYPES


@pytest.mark.parametrize("kind", [1, 4, 10, 999])
def test_what_only_the_log_writes_is_refused_to_clients_by_name(kind: int) -> None:
    refusal = client_refusal(kind)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert f"{kind} ({MessageType(kind).name})" in refusal.cause
