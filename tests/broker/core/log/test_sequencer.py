"""Sequencing against a naive idea of admission, ids, ticks and order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.log_end import LogEnd, time_tick_record
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import barrier_of, sequence
from broker.core.txn.transactions import Transactions
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.message import Appended, NewMessage, NewRun

PCHANNEL = PChannelName("by-dev-rootcoord-dml_3")
VCHANNELS = (PCHANNEL, f"{PCHANNEL}_7v0", f"{PCHANNEL}_7v1", "", f"{PCHANNEL}_vcchan")
ADMISSION = AdmissionPolicy(
    PCHANNEL, message_bytes_max=100, record_bytes_max=60, record_messages_max=4
)
END = LogEnd(Term(4), MessageId(50), TimeTick(1_000))
FIRST_TICK = TimeTick(2_000)


def known() -> WriterState:
    return WriterState(Transactions(), NumberedProducers())


def new_message(**fields: object) -> NewMessage:
    values = {"vchannel": VCHANNELS[1], "type": 2, "body": b"body", "size": 4} | fields
    return NewMessage(**values)  # type: ignore[arg-type]


MESSAGES = st.lists(
    st.builds(
        NewMessage,
        vchannel=st.sampled_from((*VCHANNELS, "elsewhere_1v0")),
        type=st.sampled_from((2, 3, 5, 1, 10, 900, 950, 999, 4321)),
        body=st.binary(max_size=40),
        size=st.sampled_from((1, 100, 101)),
        barrier_tick=st.sampled_from((0, 1_999, 2_000)),
    ),
    max_size=30,
)


def naively_admitted(message: NewMessage) -> bool:
    return (
        message.size <= 100
        and message.type in (2, 3, 5, 4321)
        and message.vchannel in VCHANNELS
        and message.barrier_tick < FIRST_TICK
    )


@given(MESSAGES)
def test_exactly_the_admitted_messages_are_stored_and_found_by_their_outcome(
    messages: list[NewMessage],
) -> None:
    result = sequence(messages, FIRST_TICK, END, ADMISSION, known())
    assert len(result.outcomes) == len(messages)
    stored = {each.id: (each, record) for record in result.records for each in record.messages()}
    admitted = 0
    for message, outcome in zip(messages, result.outcomes, strict=True):
        assert isinstance(outcome, Appended) == naively_admitted(message)
        if isinstance(outcome, Appended):
            admitted += 1
            delivered, record = stored[outcome.id]
            assert (delivered.body, record.vchannel, record.kind) == (
                message.body,
                message.vchannel,
                message.type,
            )
            assert (delivered.tick, delivered.term) == (outcome.tick, END.term)
            assert delivered.last_confirmed_id == outcome.last_confirmed_id == outcome.id
    assert len(stored) == admitted


@given(MESSAGES)
def test_ids_and_ticks_are_contiguous_and_go_on_where_the_log_ends(
    messages: list[NewMessage],
) -> None:
    result = sequence(messages, FIRST_TICK, END, ADMISSION, known())
    stored = [each for record in result.records for each in record.messages()]
    assert [each.id for each in stored] == [50 + index for index in range(len(stored))]
    assert [each.tick for each in stored] == [2_000 + index for index in range(len(stored))]
    if stored:
        assert result.end == replace(
            END, next_id=MessageId(50 + len(stored)), last_tick=stored[-1].tick
        )
    else:
        assert result.end == END


@given(MESSAGES)
def test_order_within_a_vchannel_is_kept(messages: list[NewMessage]) -> None:
    result = sequence(messages, FIRST_TICK, END, ADMISSION, known())
    for vchannel in VCHANNELS:
        ids = [
            outcome.id
            for message, outcome in zip(messages, result.outcomes, strict=True)
            if isinstance(outcome, Appended) and message.vchannel == vchannel
        ]
        assert ids == sorted(ids)


RUNS = st.builds(
    lambda vchannel, kind, bodies: NewRun(
        vchannel, kind, b"", len(bodies), bodies=tuple(bodies), sizes=(1,) * len(bodies)
    ),
    st.sampled_from((*VCHANNELS, "elsewhere_1v0")),
    st.sampled_from((2, 3)),
    st.lists(st.binary(max_size=20), min_size=1, max_size=6),
)


@given(st.lists(MESSAGES.map(lambda some: some[0] if some else new_message()) | RUNS, max_size=15))
def test_a_run_is_stored_together_and_as_its_messages_would_be(mixed: list[NewMessage]) -> None:
    result = sequence(mixed, FIRST_TICK, END, ADMISSION, known())
    stored = {each.id: (each, record) for record in result.records for each in record.messages()}
    places: dict[str, list[int]] = {}
    for message, outcome in zip(mixed, result.outcomes, strict=True):
        each = message.messages() if isinstance(message, NewRun) else [message]
        assert isinstance(outcome, Appended) == all(map(naively_admitted, each))
        if not isinstance(outcome, Appended):
            continue
        records = set()
        for at, one in enumerate(each):
            delivered, record = stored.pop(MessageId(outcome.id + at))
            assert (delivered.body, record.vchannel, record.kind) == (
                one.body,
                one.vchannel,
                one.type,
            )
            assert delivered.tick == outcome.tick + at
            assert delivered.last_confirmed_id == delivered.id
            records.add(record.base_id)
        assert outcome.last_confirmed_id == outcome.id
        assert len(records) == 1, "one record: whole after a crash, or absent"
        places.setdefault(message.vchannel, []).append(outcome.id)
    assert not stored
    assert all(ids == sorted(ids) for ids in places.values())


def test_a_run_is_refused_for_the_size_of_one_message_not_for_that_of_all() -> None:
    for sizes, admitted in (((60, 60), True), ((1, 101), False)):
        run = NewRun(VCHANNELS[1], 2, b"", sum(sizes), bodies=(b"a", b"b"), sizes=sizes)
        (outcome,) = sequence([run], FIRST_TICK, END, ADMISSION, known()).outcomes
        assert isinstance(outcome, Appended) == admitted


@pytest.mark.parametrize(
    ("message", "code", "part"),
    [
        (new_message(size=101), StreamingCode.UNRECOVERABLE, "101 bytes"),
        (new_message(type=1), StreamingCode.UNRECOVERABLE, "type 1 "),
        (new_message(type=10), StreamingCode.UNRECOVERABLE, "type 10 "),
        (new_message(type=901), StreamingCode.INVALID_ARGUMENT, "transaction"),
        (new_message(type=999), StreamingCode.UNRECOVERABLE, "type 999 "),
        (new_message(type=950), StreamingCode.UNRECOVERABLE, "type 950 "),
        (new_message(vchannel="x_1v0"), StreamingCode.UNRECOVERABLE, "x_1v0"),
        (new_message(barrier_tick=2_000), StreamingCode.INVALID_ARGUMENT, "2000"),
    ],
)
def test_a_message_that_is_not_admitted_is_told_why(
    message: NewMessage, code: StreamingCode, part: str
) -> None:
    result = sequence([message], FIRST_TICK, END, ADMISSION, known())
    (refusal,) = result.outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.code is code
    assert part in refusal.cause
    assert (result.records, result.end) == ((), END)


def test_a_closed_channel_gives_its_reason_to_everything() -> None:
    closed = Refusal(StreamingCode.CHANNEL_FENCED, "a newer term")
    admission = replace(ADMISSION, closed=closed)
    messages = [new_message(), new_message(type=4321)]
    assert sequence(messages, FIRST_TICK, END, admission, known()).outcomes == (
        closed,
        closed,
    )


@given(st.integers(1, 60))
def test_last_confirmed_is_held_back_by_the_oldest_open_transaction(begin: int) -> None:
    end = replace(END, open_txn_id=MessageId(begin))
    result = sequence([new_message(), new_message()], FIRST_TICK, end, ADMISSION, known())
    confirmed = [each.last_confirmed_id for r in result.records for each in r.messages()]
    outcomes = [o.last_confirmed_id for o in result.outcomes if isinstance(o, Appended)]
    assert outcomes == confirmed
    if begin < 50:
        assert confirmed == [begin, begin]
    tick = time_tick_record(TimeTick(3_000), result.end)
    assert tick.last_confirmed_id == min(begin, 52)


def test_a_tick_that_is_not_new_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        sequence([new_message()], TimeTick(1_000), END, ADMISSION, known())


def test_the_barrier_of_a_group_is_its_highest() -> None:
    assert barrier_of([]) == 0
    assert barrier_of([new_message(barrier_tick=7), new_message(barrier_tick=5)]) == 7
