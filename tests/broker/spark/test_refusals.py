"""Every error that reaches a person through Spark begins with a code that stays."""

import re

import pytest

from broker.client import ConnectionLost, OutcomeUnknown, TidemarkError, errors
from broker.spark.refusals import HIDDEN, BadOption, BadRow, Failed, told_to_spark


def test_each_error_of_the_client_has_a_code_of_its_own() -> None:
    found = [it for it in vars(errors).values() if isinstance(it, type)]
    kinds: list[type[TidemarkError]] = [it for it in found if issubclass(it, TidemarkError)]
    told = [str(Failed(it.__new__(it))) for it in kinds]
    codes = [re.match(r"\[TIDEMARK_[A-Z]+(_[A-Z]+)*\] ", it) for it in told]
    assert all(codes)
    assert len({it[0] for it in codes if it}) == len(kinds) > 20
    assert str(Failed(ConnectionLost("cannot reach a"))) == (
        "[TIDEMARK_CONNECTION_LOST] cannot reach a"
    )


def test_what_the_client_raises_gets_its_code_and_the_rest_passes_by() -> None:
    told = r"\[TIDEMARK_OUTCOME_UNKNOWN\] ask again"
    with pytest.raises(Failed, match=told) as caught, told_to_spark():
        raise OutcomeUnknown("ask again")
    assert isinstance(caught.value.__cause__, OutcomeUnknown)
    with pytest.raises(BadRow), told_to_spark():
        raise BadRow("value", "it is null")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("token", "planted"),
        ("tokn", "tm_1_planted"),
        ("server", " tm_1_planted"),
        ("auth", "eyJplanted"),
        ("kafka.sasl.Password", "planted"),
        ("tokenFil", "planted"),
    ],
)
def test_an_error_does_not_show_what_may_be_a_secret(option: str, value: str) -> None:
    told = str(BadOption(option, value, "remove it"))
    assert "planted" not in told
    assert f"option {option!r} is {HIDDEN}: remove it" in told


def test_an_error_shows_other_values_and_the_path_of_a_token() -> None:
    assert "option 'tokenFile' is '/run/token': " in str(BadOption("tokenFile", "/run/token", "x"))
    assert "option 'token' is '': " in str(BadOption("token", "", "it is empty"))
    assert "option 'minPartitions' is 5: " in str(BadOption("minPartitions", 5, "too few"))
