"""The keys of messages, as hashes."""

from dataclasses import replace

from broker.core.compaction.keyed_messages import HASH_BYTES, hashes_of, is_keyed
from broker.model.message import MessageType
from broker.model.record import Record
from tests.broker.core.compaction.compacted_log import Row, batch, no_key
from tests.broker.core.txn.test_transactions import V, Writer


def stored(rows: list[Row], vchannel: str = V[0]) -> Record:
    writer = Writer()
    writer.one(batch(rows, vchannel=vchannel))
    return writer.records[-1]


def test_equal_keys_of_a_vchannel_have_one_hash_and_no_others_do() -> None:
    record = stored([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"", b"1"), (None, b"1")])
    found = [key for key, _ in hashes_of(record, no_key)]
    assert found[0] == found[2]
    assert len(set(found[:4])) == 3
    assert found[4] is None, "an empty key is a key, and none is none"
    assert {len(it) for it in found[:4] if it is not None} == {HASH_BYTES}
    ((other, _),) = hashes_of(stored([(b"a", b"1")], V[1]), no_key)
    assert other not in found


def test_a_key_without_a_payload_is_a_tombstone() -> None:
    record = stored([(b"a", b""), (b"a", b"1"), (None, b"")])
    assert [empty for _, empty in hashes_of(record, no_key)] == [True, False, False]


def test_plain_messages_are_asked_for_their_keys() -> None:
    record = stored([(b"a", b"xy"), (b"b", b"z")])
    plain = replace(record, batch=None)
    asked: list[bytes] = []

    def key(body: bytes) -> tuple[bytes | None, bool]:
        asked.append(body)
        return (b"a", True) if body == b"z" else (None, False)

    (first, second) = hashes_of(plain, key)
    assert first == (None, False)
    assert second == (hashes_of(record, no_key)[0][0], True)
    assert asked == [b"xy", b"z"]


def test_only_rows_of_programs_have_keys() -> None:
    record = stored([(b"a", b"1")])
    assert is_keyed(record)
    assert not is_keyed(replace(record, kind=MessageType.TIME_TICK))
