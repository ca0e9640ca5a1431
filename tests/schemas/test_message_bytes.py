"""The fast forms of every generated message, against betterproto2's own."""

from functools import cache
from typing import Any

import betterproto2
import pytest
from betterproto2 import FieldMetadata, Message
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.varint import Malformed, varint
from schemas.generated.google import rpc
from schemas.generated.grpc.health import v1 as health
from schemas.generated.milvus.proto import common, data, messages, msg, schema, streaming
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded, parsed

MODULES = (v1, rpc, health, common, data, messages, msg, schema, streaming)
KINDS = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]
DEPTH_MAX = 2

_INTS = {
    betterproto2.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    betterproto2.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    betterproto2.TYPE_UINT32: st.integers(0, 2**32 - 1),
    betterproto2.TYPE_UINT64: st.integers(0, 2**64 - 1),
    betterproto2.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    betterproto2.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    betterproto2.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1),
    betterproto2.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
}


@cache
def _single(proto_type: str, own: Any, depth: int) -> st.SearchStrategy[Any]:
    if proto_type in _INTS:
        return st.just(0) | _INTS[proto_type]
    match proto_type:
        case betterproto2.TYPE_BOOL:
            return st.booleans()
        case betterproto2.TYPE_ENUM:
            return st.integers(-3, 300).map(own)
        case betterproto2.TYPE_FLOAT:
            return st.floats(width=32, allow_nan=False)
        case betterproto2.TYPE_DOUBLE:
            return st.floats(allow_nan=False)
        case betterproto2.TYPE_STRING:
            return st.text(max_size=200)
        case betterproto2.TYPE_BYTES:
            return st.binary(max_size=200)
        case _:
            return _messages(own, depth + 1)


def _values(kind: Any, name: str, meta: FieldMetadata, depth: int) -> Any:
    own = kind._betterproto.cls_by_field[name]
    if meta.map_meta is not None:
        key, value = meta.map_meta
        of_value = kind._betterproto.cls_by_field[f"{name}.value"]
        keys = _single(key.proto_type, str, depth)
        return st.dictionaries(keys, _single(value.proto_type, of_value, depth), max_size=3)
    one = _single(meta.proto_type, own, depth)
    if meta.repeated:
        return st.lists(one, max_size=3)
    missing = meta.optional or meta.group or meta.proto_type == betterproto2.TYPE_MESSAGE
    return st.none() | one if missing else one


@cache
def _messages(kind: Any, depth: int = 0) -> st.SearchStrategy[Message]:
    if depth > DEPTH_MAX:
        return st.builds(kind)
    metas = kind._betterproto.meta_by_field_name.items()

    def later(name: str, meta: FieldMetadata) -> st.SearchStrategy[Any]:
        return st.deferred(lambda: _values(kind, name, meta, depth))

    every = st.builds(kind, **{name: later(name, meta) for name, meta in metas})
    return every.map(_with_one_of_each_oneof) if kind._betterproto.oneof_field_by_group else every


def _with_one_of_each_oneof(message: Any) -> Any:
    for group in message._betterproto.oneof_field_by_group.values():
        given_ones = sorted(it.name for it in group if getattr(message, it.name) is not None)
        for name in given_ones[1:]:
            setattr(message, name, None)
    return message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_class_has_its_writers_and_readers(kind: type[Message]) -> None:
    assert encoded(kind()) == b""
    assert parsed(kind, b"") == kind()


@given(st.sampled_from(KINDS).flatmap(_messages))
def test_bytes_are_those_of_betterproto(message: Message) -> None:
    assert encoded(message) == bytes(message)


@given(st.sampled_from(KINDS).flatmap(_messages))
def test_a_message_is_what_betterproto_reads(message: Message) -> None:
    kind, sent = type(message), bytes(message)
    assert parsed(kind, sent) == kind.parse(sent)


@given(st.sampled_from(KINDS).flatmap(_messages), st.data())
def test_damaged_bytes_are_refused_or_read_as_a_message_that_can_be_written(
    message: Message, draw: st.DataObject
) -> None:
    sent = bytearray(bytes(message))
    for _ in range(draw.draw(st.integers(1, 3))):
        if sent:
            sent[draw.draw(st.integers(0, len(sent) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(sent[: draw.draw(st.integers(0, len(sent)))])
    try:
        found = parsed(type(message), damaged)
    except (Malformed, UnicodeDecodeError):
        return
    assert _as_text(parsed(type(message), encoded(found))) == _as_text(found)


def _as_text(message: Any) -> str:
    """Not equal by `==` where a number is NaN."""
    return repr(message) + repr(message._unknown_fields)


@given(_messages(v1.SettleMessages), st.integers(100, 1000), st.binary(max_size=9))
def test_unknown_fields_are_kept(message: Message, number: int, content: bytes) -> None:
    unknown = varint(number << 3 | 2) + varint(len(content)) + content
    found = parsed(v1.SettleMessages, bytes(message) + unknown)
    assert encoded(found) == bytes(message) + unknown


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.lists(st.integers(0, 2**63 - 1)))
def test_packed_and_single_numbers_make_one_list(packed: list[int], single: list[int]) -> None:
    content = b"".join(map(varint, packed))
    sent = b"\x12" + varint(len(content)) + content
    sent += b"".join([b"\x10" + varint(it) for it in single])
    kind = messages.CreateCollectionMessageHeader
    assert parsed(kind, sent).partition_ids == packed + single
    assert parsed(kind, sent) == kind.parse(sent)


# What the protobuf library of Google reads of the same bytes.
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ("08010802", v1.Settled(number=2)),
        # A string where a number is to be, a fixed number where a string is to be, and a group.
        ("0a026162", v1.Settled()),
        ("1d01020304" + "0805", v1.Settled(number=5)),
        ("0b08070c" + "1005", v1.Settled(code=5)),
        # Two halves of one message, with another field between them.
        (
            "12020801" + "1802" + "12021002",
            v1.LeasedMessages(span=v1.TickSpan(after=1, upto=2), times=2),
        ),
    ],
)
def test_what_no_encoder_writes_is_read_as_protobuf_says(sent: str, message: Message) -> None:
    found = parsed(type(message), bytes.fromhex(sent))
    found._unknown_fields = b""
    assert found == message


def test_of_a_oneof_the_last_one_holds() -> None:
    kind = schema.ValueField
    assert parsed(kind, b"\x08\x01\x10\x05") == kind(int_data=5)
    both = b"\x1a\x00\x22\x00\x1a\x00"
    field = parsed(schema.FieldData, both)
    assert (field.scalars, field.vectors) == (schema.ScalarField(), None)


def test_an_enum_has_32_bits() -> None:
    sent = b"\x10" + varint(2**32 + 5)
    assert parsed(schema.ArrayArray, sent).element_type == schema.DataType(5)
    assert parsed(schema.ArrayArray, b"\x10" + varint(-1)).element_type == schema.DataType(-1)


def test_an_entry_of_a_map_without_a_value_has_an_empty_one() -> None:
    found = parsed(streaming.BroadcastResponse, b"\x0a\x03\x0a\x01a")
    assert found.results == {"a": streaming.ProduceMessageResponseResult()}
    assert parsed(streaming.BroadcastResponse, encoded(found)) == found


def test_messages_that_are_nested_too_deep_are_refused_at_once() -> None:
    steps = (b"\x42", b"\x0a")  # struct_arrays, and its fields
    # An unknown field at each level, which would have all below it read once more.
    sent = b""
    for depth in range(3000):
        inner = b"\xb8\x3e\x01" + sent
        sent = steps[1 - depth % 2] + varint(len(inner)) + inner
    with pytest.raises(Malformed, match="too deep"):
        parsed(schema.FieldData, sent)


def test_a_message_that_is_cut_off_inside_a_message_is_refused() -> None:
    whole = bytes(v1.LeasedMessages(span=v1.TickSpan(after=5)))
    with pytest.raises(ValueError, match=r"cut off|left"):
        parsed(v1.LeasedMessages, whole[:-1] + b"\xff")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (v1.Settled(number=2**64), ValueError),
        (v1.Settled(number=-(2**63) - 1), ValueError),
        (v1.Settled(cause=7), AttributeError | TypeError),  # type: ignore[arg-type]
        (streaming.ConsumeRequest(create_vchannel_consumer="x"), AttributeError | TypeError),  # type: ignore[arg-type]
    ],
)
def test_values_of_a_wrong_kind_are_refused(message: Message, error: Any) -> None:
    kinds = getattr(error, "__args__", error)
    with pytest.raises(kinds):
        encoded(message)
