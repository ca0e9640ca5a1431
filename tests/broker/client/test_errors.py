"""What can be raised; the table of it in the client's page is generated from the types."""

import pickle

from broker.client import errors
from broker.client.errors import ServerRefusal
from broker.client.refusal_kinds import refusal
from broker.model.failure import StreamingCode

REFUSALS = ServerRefusal.__subclasses__()


def test_every_code_of_the_protocol_is_an_error_of_its_own() -> None:
    codes = {kind.expected for kind in REFUSALS}
    assert codes == {code for code in StreamingCode if code is not StreamingCode.OK}
    for code in codes:
        assert type(refusal(code, "because")).expected is code


def test_a_code_that_nobody_knows_is_an_unknown_refusal_that_may_be_retried() -> None:
    raised = refusal(4711, "because")
    assert isinstance(raised, errors.UnknownRefusal)
    assert raised.retriable
    assert "4711" in str(raised)


def test_every_refusal_says_what_it_means() -> None:
    assert all(kind.__doc__ for kind in REFUSALS)


def test_a_refusal_survives_pickling_as_spark_needs() -> None:
    for kind in REFUSALS:
        again = pickle.loads(pickle.dumps(kind("because")))
        assert (type(again), again.cause, again.code) == (kind, "because", kind.expected)


def test_errors_with_fields_survive_pickling_too() -> None:
    gone = pickle.loads(pickle.dumps(errors.OutOfRange("p_1v0", 3, 7, 9)))
    assert (gone.channel, gone.requested_id, gone.first_id, gone.next_id) == ("p_1v0", 3, 7, 9)
    away = pickle.loads(pickle.dumps(errors.NodeUnreachable("n:1", "s:2", "refused")))
    assert (away.address, away.given_by, away.cause) == ("n:1", "s:2", "refused")
    failed = pickle.loads(pickle.dumps(errors.AppendsFailed([errors.ConnectionLost("away"), 1])))
    assert (type(failed.results[0]), failed.results[1]) == (errors.ConnectionLost, 1)
    assert failed.retriable
