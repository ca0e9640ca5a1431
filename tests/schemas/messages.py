"""Random messages, written as any protobuf encoder might write them, and as none should."""

from collections.abc import Callable

from hypothesis import strategies as st

from schemas.encoding.fields import field, fields
from schemas.encoding.varint import Malformed, varint

SERVER_KEYS = ("_tt", "_lc", "_lcs", "_wt", "_np")
CLIENT_KEYS = ("_t", "_v", "_h", "_vc", "_btt", "_tx", "_bh", "_rh", "tidemark.key", "a", "")

texts = st.text(max_size=8) | st.text(min_size=100, max_size=300)
keys = st.sampled_from(CLIENT_KEYS) | st.text(max_size=150).filter(
    lambda key: key not in SERVER_KEYS
)
any_keys = keys | st.sampled_from(SERVER_KEYS)
properties = st.dictionaries(keys, texts, max_size=8)
payloads = st.binary(max_size=20) | st.binary(min_size=120, max_size=300)
int64s = st.integers(-(2**63), 2**63 - 1)
ids = st.integers(0, 2**63 - 1)
ticks = st.integers(0, 2**64 - 1)


@st.composite
def odd_varints(draw: st.DrawFn, values: st.SearchStrategy[int]) -> bytes:
    """A varint, at times longer than it need be."""
    encoded = bytearray(varint(draw(values)))
    padding = draw(st.integers(0, 10 - len(encoded))) if draw(st.booleans()) else 0
    if padding:
        encoded[-1] |= 128
        encoded += bytes([128] * (padding - 1) + [0])
    return bytes(encoded)


@st.composite
def odd_lengths(draw: st.DrawFn, tag: int, content: bytes) -> bytes:
    """A length-delimited field, its tag and length at times longer than they need be."""
    return draw(odd_varints(st.just(tag))) + draw(odd_varints(st.just(len(content)))) + content


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    """One field of a number that none of our messages has."""
    number = draw(st.integers(16, 2**29 - 1))
    match draw(st.sampled_from([0, 1, 2, 3, 5])):
        case 0:
            return varint(number << 3) + draw(odd_varints(ticks))
        case 1:
            return varint(number << 3 | 1) + draw(st.binary(min_size=8, max_size=8))
        case 2:
            return varint(number << 3 | 2) + field(2, draw(st.binary(max_size=9)))[1:]
        case 3:
            inner = draw(st.just(b"") | unknown_fields())
            return varint(number << 3 | 3) + inner + varint(number << 3 | 4)
        case _:
            return varint(number << 3 | 5) + draw(st.binary(min_size=4, max_size=4))


@st.composite
def odd_entries(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """A map entry with its fields in any order, left out when empty, or with unknown ones."""
    key, value = draw(any_keys), draw(texts)
    parts = []
    if key or draw(st.booleans()):
        parts.append(draw(odd_lengths(0x0A, key.encode())))
    if value or draw(st.booleans()):
        parts.append(draw(odd_lengths(0x12, value.encode())))
    parts += draw(st.lists(unknown_fields(), max_size=1))
    return key, value, b"".join(draw(st.permutations(parts)))


@st.composite
def odd_messages(draw: st.DrawFn) -> tuple[bytes, dict[str, str], bytes]:
    """Payload, properties and the encoded `messages.Message`."""
    payload, properties = b"", {}
    encoded = []
    for kind in draw(st.lists(st.sampled_from(["payload", "entry", "entry", "unknown"]))):
        if kind == "payload":
            payload = draw(payloads)
            encoded.append(draw(odd_lengths(0x0A, payload)))
        elif kind == "entry":
            key, value, entry = draw(odd_entries())
            properties[key] = value
            encoded.append(draw(odd_lengths(0x12, entry)))
        else:
            encoded.append(draw(unknown_fields()))
    return payload, properties, b"".join(encoded)


def offset_of_fault(scan: Callable[[bytes], object], data: bytes) -> int:
    """Where `scan` finds `data` malformed, 0 when it does not; any other error passes through."""
    try:
        scan(data)
    except Malformed as error:
        return error.offset
    return 0


def contents(data: bytes) -> list[tuple[int, int | bytes]]:
    """Tags and values in order, however long their encoding is."""
    return [
        (tag, data[first:stop] if tag & 7 else first)
        for tag, first, stop in fields(data, 0, len(data))
    ]
