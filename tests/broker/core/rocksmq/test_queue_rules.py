"""Names and amounts: what is taken, and what each refusal says."""

import pytest

from broker.core.rocksmq import queue_rules
from broker.core.rocksmq.queue_rules import (
    BATCH_BYTES_MAX,
    MESSAGES_MAX,
    NAME_BYTES_MAX,
    alloc_fault,
    batch_fault,
    name_fault,
    range_fault,
    take_fault,
)
from broker.model.rocksmq.queue_refusal import QueueFault


@pytest.mark.parametrize("name", ["a", "by-dev.dml_0", "ä" * 127, "x" * NAME_BYTES_MAX, "*", " "])
def test_a_name_of_other_characters_and_up_to_255_bytes_is_taken(name: str) -> None:
    assert name_fault("channel", name) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "empty"),
        ("a/b", "'a/b' has '/'"),
        ("/", "'/'"),
        ("a\0", "NUL"),
        ("\ud800", "no Unicode text"),
        ("x" * (NAME_BYTES_MAX + 1), "has 256 bytes; at most 255"),
        ("ä" * 128, "has 256 bytes"),
    ],
)
def test_any_other_name_is_refused_by_what_is_wrong_with_it(name: str, told: str) -> None:
    refusal = name_fault("channel", name)
    assert refusal is not None
    assert refusal.fault is QueueFault.BAD_NAME
    assert told in refusal.cause
    assert "channel" in refusal.cause


def test_a_batch_is_bounded_in_messages_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batch_fault([]) is None
    assert batch_fault([b""] * MESSAGES_MAX) is None
    many = batch_fault([b""] * (MESSAGES_MAX + 1))
    assert many is not None
    assert "65537 messages in one produce" in many.cause
    monkeypatch.setattr(queue_rules, "BATCH_BYTES_MAX", 5)
    assert batch_fault([b"123", b"45"]) is None
    large = batch_fault([b"123", b"456"])
    assert large is not None
    assert large.fault is QueueFault.BAD_ARGUMENT
    assert "6 bytes of payload; at most 5" in large.cause
    assert BATCH_BYTES_MAX == 64 << 20


def test_a_message_that_is_not_of_bytes_is_named_by_its_place() -> None:
    refusal = batch_fault([b"a", "b"])
    assert refusal is not None
    assert refusal.cause == "message 1 of the produce is a str; it must be bytes"


@pytest.mark.parametrize("count", [-1, MESSAGES_MAX + 1])
def test_a_negative_number_of_messages_and_too_many_are_refused(count: int) -> None:
    refusal = take_fault(count)
    assert refusal is not None
    assert str(count) in refusal.cause
    assert take_fault(0) is None
    assert take_fault(MESSAGES_MAX) is None


@pytest.mark.parametrize("count", [-1, 0, MESSAGES_MAX + 1])
def test_no_ids_and_too_many_ids_are_refused(count: int) -> None:
    refusal = alloc_fault(count)
    assert refusal is not None
    assert f"{count} ids" in refusal.cause
    assert alloc_fault(1) is None
    assert alloc_fault(MESSAGES_MAX) is None


def test_an_allocator_must_give_as_many_ids_as_were_asked_for() -> None:
    assert range_fault(3, 1, 4) is None
    assert range_fault(1, 2**63 - 1, 2**63) is None
    for start, end in ((1, 3), (1, 5), (0, 3), (-3, 0), (2**63 - 2, 2**63 + 1)):
        refusal = range_fault(3, start, end)
        assert refusal is not None
        assert f"[{start}, {end}) for 3 ids" in refusal.cause
