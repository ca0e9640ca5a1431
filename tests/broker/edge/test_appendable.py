"""Which messages go on: the fast path and the slow one agree with the rules said plainly."""

from hypothesis import given
from hypothesis import strategies as st

from broker.edge.appendable import EMPTY_HEADER, Appendable
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName
from broker.model.message import NewMessage
from schemas.wire import ScannedMessage

P0 = PChannelName("by-dev-rootcoord-dml_0")
GOOD = ScannedMessage(2, 1, f"{P0}_1v0", b"stored", 10, 0, None, False, False, True, ())
SCANNED = st.builds(
    ScannedMessage,
    type=st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 10, 37, 44, 700, 900, 901, 902, 999]),
    version=st.sampled_from([-1, 0, 1, 2]),
    vchannel=st.sampled_from(
        ["", P0, f"{P0}_1v0", f"{P0}_vcchan", "by-dev-rootcoord-dml_1_1v0", "x"]
    ),
    stored=st.just(b"stored"),
    size=st.sampled_from([0, 100, 101]),
    barrier_tick=st.sampled_from([-1, 0, 5]),
    txn=st.sampled_from([None, "", "CAEQkE4="]),
    broadcast=st.booleans(),
    replicate=st.booleans(),
    has_header=st.booleans(),
    stripped=st.just(()),
)


def naive(message: ScannedMessage) -> StreamingCode:
    """The rules in order, nothing remembered."""
    code = StreamingCode
    if message.size > 100:
        return code.UNRECOVERABLE
    if message.type in (-1, 0, 44) or message.version < 1:
        return code.INVALID_ARGUMENT
    if message.type in (1, 4, 10) or message.barrier_tick < 0:
        return code.INVALID_ARGUMENT
    if message.type in (900, 901, 902, 999) or message.txn is not None or message.broadcast:
        return code.UNRECOVERABLE
    if message.replicate:
        return code.REPLICATE_VIOLATION
    if message.vchannel not in ("", P0) and message.vchannel.rpartition("_")[0] != P0:
        return code.INVALID_ARGUMENT
    return code.OK


@given(st.lists(SCANNED, max_size=20))
def test_every_verdict_is_that_of_the_plain_rules(messages: list[ScannedMessage]) -> None:
    appendable = Appendable(P0, 100)
    for message in messages:
        verdict = appendable.judge(message)
        code = verdict.code if isinstance(verdict, Refusal) else StreamingCode.OK
        assert code is naive(message), message


def test_a_message_goes_on_untouched_and_gets_a_header_only_when_it_has_none() -> None:
    appendable = Appendable(P0, 100)
    for message, body in (
        (GOOD, b"stored"),
        (GOOD._replace(has_header=False), b"stored" + EMPTY_HEADER),
    ):
        assert appendable.judge(message) == NewMessage(GOOD.vchannel, 2, body, 10, 0)


def test_the_cause_names_what_is_wrong() -> None:
    verdict = Appendable(P0, 100).judge(GOOD._replace(vchannel="elsewhere_0_1v0"))
    assert isinstance(verdict, Refusal)
    assert "elsewhere_0_1v0" in verdict.cause
    assert P0 in verdict.cause
