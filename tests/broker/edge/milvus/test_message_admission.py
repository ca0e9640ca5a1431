"""Which messages go on: the fast path and the slow one agree with the rules said plainly."""

from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from broker.edge.milvus.message_admission import EMPTY_HEADER, MessageAdmission
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TxnId
from broker.model.message import NewMessage, NewRun
from broker.model.txn import TxnContext
from schemas.encoding.entries import write_entry
from schemas.properties.txn_context import begin_header
from schemas.wire import ScannedMessage, ScannedRun

P0 = PChannelName("by-dev-rootcoord-dml_0")
STORED = b"\x12\x06stored"
GOOD = ScannedMessage(2, 1, f"{P0}_1v0", STORED, 10, 0, None, False, False, True, ())
SCANNED = st.builds(
    ScannedMessage,
    type=st.sampled_from(
        [-1, 0, 1, 2, 3, 4, 5, 10, 37, 44, 45, 700, 777, 800, 900, 950, 1900, 901, 902, 999]
    ),
    version=st.sampled_from([-1, 0, 1, 2]),
    vchannel=st.sampled_from(
        ["", P0, f"{P0}_1v0", f"{P0}_vcchan", "by-dev-rootcoord-dml_1_1v0", "x"]
    ),
    stored=st.just(STORED),
    size=st.sampled_from([0, 100, 101]),
    barrier_tick=st.sampled_from([-1, 0, 5]),
    txn=st.sampled_from([None, "", "!", "CAEQkE4="]),
    broadcast=st.booleans(),
    replicate=st.booleans(),
    has_header=st.booleans(),
    stripped=st.just(()),
)


def naive(message: ScannedMessage) -> StreamingCode:
    """The rules in order, nothing remembered."""
    found = naive_of_type(message)
    return naive_of_the_rest(message) if found is StreamingCode.OK else found


def naive_of_type(message: ScannedMessage) -> StreamingCode:
    code = StreamingCode
    if message.size > 100:
        return code.UNRECOVERABLE
    if message.type in (-1, 0) or message.version < 1:
        return code.INVALID_ARGUMENT
    if message.type in (1, 4, 10, 999):
        return code.INVALID_ARGUMENT
    if message.type in (700, 800, 950, 1900):
        return code.UNRECOVERABLE
    return code.OK


def naive_of_the_rest(message: ScannedMessage) -> StreamingCode:
    code = StreamingCode
    if message.barrier_tick < 0:
        return code.INVALID_ARGUMENT
    if message.type in (901, 902) and message.txn is None:
        return code.INVALID_ARGUMENT
    if message.broadcast:
        return code.UNRECOVERABLE
    if message.replicate:
        return code.REPLICATE_VIOLATION
    if message.vchannel not in ("", P0) and message.vchannel.rpartition("_")[0] != P0:
        return code.INVALID_ARGUMENT
    if message.type == 900:
        return code.OK if message.txn is None else code.INVALID_ARGUMENT
    return code.INVALID_ARGUMENT if message.txn == "!" else code.OK


@given(st.lists(SCANNED, max_size=20))
def test_every_verdict_is_that_of_the_plain_rules(messages: list[ScannedMessage]) -> None:
    admission = MessageAdmission(P0, 100)
    for message in messages:
        verdict = admission.judge(message)
        code = verdict.code if isinstance(verdict, Refusal) else StreamingCode.OK
        assert code is naive(message), message


@given(st.lists(st.tuples(SCANNED, st.lists(st.sampled_from([0, 100, 101]))), max_size=20))
def test_a_run_goes_on_whole_only_if_each_of_its_messages_would(
    runs: list[tuple[ScannedMessage, list[int]]],
) -> None:
    together, alone = MessageAdmission(P0, 100), MessageAdmission(P0, 100)
    for facts, more in runs:
        run = ScannedRun(facts)
        run.sizes = [facts.size, *more]
        run.bodies = [b"%d" % at for at in range(len(run.sizes))]
        run.request_ids = list(range(len(run.sizes)))
        whole = together.judge_run(run)
        singly = [alone.judge(each) for each in run.messages()]
        if whole is None:
            [together.judge(each) for each in run.messages()]
        else:
            assert whole.messages() == singly
            assert whole.size == sum(run.sizes)


def test_a_second_run_of_a_vchannel_goes_on_whole() -> None:
    admission = MessageAdmission(P0, 100)
    run = ScannedRun(GOOD)
    run.sizes, run.bodies = [1, 2], [b"a", b"b"]
    assert admission.judge_run(run) is None
    admission.judge(GOOD)
    assert admission.judge_run(run) == NewRun(
        GOOD.vchannel, 2, b"", 3, bodies=(b"a", b"b"), sizes=(1, 2)
    )


def test_a_message_goes_on_untouched_and_gets_a_header_only_when_it_has_none() -> None:
    admission = MessageAdmission(P0, 100)
    for message, body in (
        (GOOD, STORED),
        (GOOD._replace(has_header=False), STORED + EMPTY_HEADER),
    ):
        assert admission.judge(message) == NewMessage(GOOD.vchannel, 2, body, 10, 0)


def test_the_cause_names_what_is_wrong() -> None:
    verdict = MessageAdmission(P0, 100).judge(GOOD._replace(vchannel="elsewhere_0_1v0"))
    assert isinstance(verdict, Refusal)
    assert "elsewhere_0_1v0" in verdict.cause
    assert P0 in verdict.cause


def test_a_begin_says_its_keepalive_in_its_header_and_gets_its_name_from_the_log() -> None:
    header = write_entry(b"\x1a", "_h", b64encode(begin_header(2500)).decode())
    begin = GOOD._replace(type=900, stored=header)
    verdict = MessageAdmission(P0, 100).judge(begin)
    assert isinstance(verdict, NewMessage)
    assert verdict.txn == TxnContext(TxnId(0), 2500)
    wrong = MessageAdmission(P0, 100).judge(begin._replace(stored=b"\x1a\x06\x0a\x02_h\x12\x05!"))
    assert isinstance(wrong, Refusal)
    assert wrong.code is StreamingCode.INVALID_ARGUMENT


def test_a_message_of_a_transaction_brings_its_name() -> None:
    verdict = MessageAdmission(P0, 100).judge(GOOD._replace(txn="CAEQkE4="))
    assert isinstance(verdict, NewMessage)
    assert verdict.txn == TxnContext(TxnId(1), 10_000)


def test_an_exclusive_message_says_whether_it_concerns_the_whole_pchannel() -> None:
    drop = GOOD._replace(type=6)
    for stored, whole in ((STORED, False), (STORED + write_entry(b"\x1a", "_pcl", ""), True)):
        verdict = MessageAdmission(P0, 100).judge(drop._replace(stored=stored))
        assert isinstance(verdict, NewMessage)
        assert verdict.pchannel_level is whole


def test_a_name_that_readers_would_have_to_keep_for_ever_is_refused_and_not_remembered() -> None:
    admission = MessageAdmission(P0, 1 << 24)
    for ending in ("_v" + "x" * (1 << 20), "_v\n", "_\u0430v0"):
        verdict = admission.judge(GOOD._replace(vchannel=P0 + ending))
        assert isinstance(verdict, Refusal)
        assert verdict.code is StreamingCode.INVALID_ARGUMENT
        assert len(verdict.cause) < 300
    assert admission._vchannels == {""}
