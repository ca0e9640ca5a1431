"""Dead letters: what is taken out of records, and what their copies hold."""

from dataclasses import replace

from broker.codec.letters import copies, letters_of
from broker.model.groups.consumer_group import GroupKey
from broker.model.groups.dead_letter import ID, MARKS, Death, Letter, copied_id
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import ClosedTick
from broker.model.record import Record, RecordSlice

V = "by-dev-rootcoord-dml_0_7v0"
DEATH = Death(GroupKey(V, "workers"), "trains", "bad seat", 3)


def letter(payload: bytes, key: bytes | None = None, **properties: str) -> Letter:
    return Letter(MessageId(5), TimeTick(50), 2, payload, key, properties)


def read(vchannel: str, *letters: Letter) -> list[Letter]:
    batch = copies(vchannel, [(it, DEATH.marks(it)) for it in letters])
    record = Record(
        Term(1),
        MessageId(9),
        TimeTick(90),
        MessageId(9),
        batch.type,
        vchannel,
        batch.sizes,
        batch.body,
        batch=batch.part,
    )
    return letters_of([RecordSlice(record, 0, len(letters))])


def test_a_copy_has_payload_key_and_properties_and_says_why() -> None:
    a, b, c = read(V, letter(b"a", b"k", seat="7"), letter(b""), letter(b"c", b""))
    assert (a.payload, a.key, b.key, c.key) == (b"a", b"k", None, b"")
    assert {name: it for name, it in a.properties.items() if name not in MARKS} == {"seat": "7"}
    assert a.properties["dead.cause"] == "bad seat"
    assert copied_id(a, DEATH.key) == 5
    assert copied_id(a, GroupKey(V, "others")) is None
    assert copied_id(replace(a, properties={**a.properties, ID: "x"}), DEATH.key) is None
    many = {**a.properties, ID: "9" * 5000}
    assert copied_id(replace(a, properties=many), DEATH.key) is None
    assert copied_id(replace(a, is_copy=False), DEATH.key) is None, "a program has written it"
    assert [it.id for it in (a, b, c)] == [9, 10, 11]


def test_the_size_of_a_copy_is_that_of_its_message() -> None:
    one = letter(b"a" * 1000, b"k", seat="7")
    assert copies(V, [(one, DEATH.marks(one))]).size == one.size == 1006


def test_what_cannot_be_taken_apart_is_copied_as_it_is_stored() -> None:
    tick = ClosedTick(TimeTick(1), MessageId(1), MessageId(1), Term(1), persisted=False)
    record = Record(Term(1), MessageId(1), TimeTick(1), MessageId(1), 2, V, (3,), b"\xff\xff\xff")
    (found,) = letters_of([tick, RecordSlice(record, 0, 1)])
    assert (found.payload, found.key, found.properties) == (b"\xff\xff\xff", None, {})
