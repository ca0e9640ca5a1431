"""P19: an exclusive message overlaps no other append of its scope, in any group of messages."""

from hypothesis import given
from hypothesis import strategies as st

from broker.model.message import Appended, NewMessage
from tests.broker.core.txn.test_transactions import P, V, Writer, begin, of, plain

EXCLUSIVE = {6: False, 9: False, 37: True}
"""Kinds, and whether they take the whole pchannel."""

NEW = st.tuples(
    st.sampled_from((2, 2, 3, 14, 6, 9, 37)), st.sampled_from((*V, "", P)), st.booleans()
)
IN_TXN = st.tuples(st.sampled_from((2, 2, 901, 902)), st.integers(0, 3))


def in_scope(exclusive: NewMessage, other: NewMessage) -> bool:
    whole = EXCLUSIVE[exclusive.type] or exclusive.pchannel_level
    whole = whole or exclusive.vchannel in ("", P)
    return whole or other.vchannel == exclusive.vchannel


@given(st.lists(NEW | IN_TXN, max_size=20))
def test_what_came_before_an_exclusive_message_lies_before_it_and_what_came_after_behind_it(
    drawn: list[tuple[int, str, bool] | tuple[int, int]],
) -> None:
    writer = Writer()
    txns = [(writer.begin(vchannel), vchannel) for vchannel in V * 2]
    messages: list[NewMessage] = []
    for each in drawn:
        match each:
            case (kind, str() as vchannel, level):
                messages.append(plain(vchannel, kind, pchannel_level=level and kind in EXCLUSIVE))
            case (kind, int() as which):
                messages.append(of(txns[which][0], kind, txns[which][1]))
    result = writer.group(*messages, begin())
    placed: dict[int, tuple[int, NewMessage]] = {}
    for at, (message, outcome) in enumerate(zip(messages, result.outcomes, strict=False)):
        if isinstance(outcome, Appended):  # an end that is repeated has the first one's answer
            placed.setdefault(outcome.id, (at, message))
    for exclusive_id, (at, message) in placed.items():
        if message.type in EXCLUSIVE:
            (record,) = [it for it in result.records if it.base_id <= exclusive_id < it.next_id]
            assert len(record.sizes) == 1
            for other_id, (other_at, other) in placed.items():
                if other_at != at and in_scope(message, other):
                    assert (other_id < exclusive_id) == (other_at < at)
