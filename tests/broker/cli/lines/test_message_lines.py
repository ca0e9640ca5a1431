"""Formats and filters of `tidemark consume`, on batches in both forms in which they are stored."""

import json

import pytest

from broker.cli.lines.message_filter import BadFilter, message_filter
from broker.cli.lines.message_lines import BadFormat, message_lines
from broker.client import Message, MessageBatch
from broker.client.message import encode
from broker.model.ids import TimeTick
from schemas.batches import STORED, ReadBatch
from schemas.encoding.entries import write_entry
from schemas.encoding.fields import field, fields

TICK = (1_700_000_000_123 << 18) + 5


def plain() -> MessageBatch:
    """Three messages with shared properties; keys of the first and the last."""
    return batch_of(
        ReadBatch(
            vchannel="p_1v0",
            sizes=(3, 2, 2),
            properties=write_entry(b"\x1a", "from", "Ulm"),
            message_id=7,
            tick=TICK,
            type=2,
            key_sizes=(3, 0, 3),  # one more than the key has bytes; 0 is no key
            keys=b"UAAA",
            end=3,
            body=b"one\xff\x00t\n",
        )
    )


def stored() -> MessageBatch:
    """The messages of a transaction, each with its own properties."""
    messages = [
        Message(b"a%", key="AA", properties={"from": "Ulm", "to": "Aulendorf"}),
        Message(b"", properties={"from": ""}, type=3),
    ]
    # Payload and properties have other numbers in what is stored than in what is sent.
    bodies = [stored_form(encode(it, "p_1v0")) for it in messages]
    sizes = tuple(map(len, bodies))
    return batch_of(
        ReadBatch(sizes=sizes, tick=TICK, form=STORED, ids=(4, 6), end=2, body=b"".join(bodies))
    )


def stored_form(sent: bytes) -> bytes:
    return b"".join(
        field(tag + 8, sent[first:stop]) for tag, first, stop in fields(sent, 0, len(sent))
    )


def batch_of(came: ReadBatch) -> MessageBatch:
    return MessageBatch(came, "trains", TimeTick(TICK))


def lines(form: str, batch: MessageBatch, *filters: str) -> list[bytes]:
    chosen = message_filter(filters)
    return message_lines(form)(batch, None if chosen is None else chosen(batch))


@pytest.mark.parametrize("batch", [plain(), stored()])
def test_json_says_what_the_messages_say(batch: MessageBatch) -> None:
    rows = [json.loads(line) for line in lines("json", batch)]
    assert len(rows) == len(batch.messages)
    for row, message in zip(rows, batch.messages, strict=True):
        assert (row["id"], row["tick"], row["type"]) == (message.id, message.tick, message.type)
        assert row["timestamp_ms"] == message.timestamp_ms
        assert (row["collection"], row["vchannel"]) == ("trains", message.vchannel)
        assert row.get("properties", {}) == message.properties
        assert ("key" in row) == (message.key is not None)


def test_json_writes_text_as_text_and_bytes_as_base64() -> None:
    one, two, three = map(json.loads, lines("json", plain()))
    assert one["payload"] == "one"
    assert (one["key"], three["key"]) == ("UA", "AA")
    assert two["payload_base64"] == "/wA="
    assert three["payload"] == "t\n"


def test_raw_and_hex_are_the_payloads() -> None:
    assert lines("raw", plain()) == [b"one", b"\xff\x00", b"t\n"]
    assert lines("hex", plain()) == [b"6f6e65", b"ff00", b"740a"]


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("%{id}:%{payload}", [b"4:a%", b"6:"]),
        (r"%{key}\t%{property:from}\x41%%", [b"AA\tUlmA%", b"\tA%"]),
        ("%{vchannel} %{collection} %{type} %{size}", [b"p_1v0 trains 2 2", b"p_1v0 trains 3 0"]),
        ("%{key:hex} %{key:base64} %{payload:json}", [b'4141 QUE= "a%"', b'  ""']),
        ("%{time} %{timestamp_ms}", [b"2023-11-14T22:13:20.123Z 1700000000123"] * 2),
        ("%{tick}\\0", [f"{TICK}\0".encode()] * 2),
        ("%{properties}", [b'{"from": "Ulm", "to": "Aulendorf"}', b'{"from": ""}']),
        ("é%{id}", ["é4".encode(), "é6".encode()]),
    ],
)
def test_a_template_is_filled_with_the_fields_it_names(template: str, written: list[bytes]) -> None:
    assert lines(template, stored()) == written


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("%{kye}", "did you mean 'key'"),
        ("%{nonsense}", "use one of payload, key, id"),
        ("%{key:rot13}", "'rot13' in 'key:rot13' is not a form; use hex, base64, json"),
        ("%{property:}", "write property:NAME"),
        ("%{}", "'' is not a field"),
        ("%k %s", r"'%k' in the format '%k %s' is not a field; write %{FIELD}"),
        ("%{key}%", "'%' in the format"),
        (r"%{key}\q", r"is not an escape; use \n, \t"),
        ("100%%", "has no field"),
        ("jsn", "'jsn' is not a format; use json, raw, hex, or a template"),
    ],
)
def test_a_format_that_cannot_be_used_says_what_to_write(form: str, complaint: str) -> None:
    with pytest.raises(BadFormat) as refused:
        message_lines(form)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["key=AA"], [4]),
        (["key=A"], []),
        (["key=A*"], [4]),
        (["key!=AA"], [6]),
        (["key="], []),
        (["key=*"], [4]),
        (["property:from=Ulm"], [4]),
        (["property:from="], [6]),
        (["property:to!=Ulm"], [4, 6]),
        (["type=2", "payload=a*"], [4]),
        (["type=2", "type=3"], []),
        ([r"payload=a\*"], []),
        (["key:hex=4141"], [4]),
        (["id=6"], [6]),
    ],
)
def test_a_filter_chooses_by_value_or_prefix(filters: list[str], ids: list[int]) -> None:
    assert lines("%{id}", stored(), *filters) == [str(it).encode() for it in ids]


def test_a_star_and_an_equals_sign_may_be_part_of_a_value() -> None:
    came = ReadBatch(sizes=(4, 4), message_id=1, tick=TICK, end=2, body=b"a=b*a=bc")
    assert lines("%{id}", batch_of(came), r"payload=a=b\*") == [b"1"]
    assert lines("%{id}", batch_of(came), "payload=a=b*") == [b"1", b"2"]


@pytest.mark.parametrize("expression", ["key", "=A", "!=A", "kye=1", "property:=1"])
def test_a_filter_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(BadFilter, match=r"filter|field|property"):
        message_filter([expression])
