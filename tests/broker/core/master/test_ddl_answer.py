"""The answer to a change, as text and back."""

import pytest

from broker.core.master.ddl_answer import DdlAnswer, read_answer, write_answer
from broker.model.ids import VChannelName


@pytest.mark.parametrize(
    "answer", [DdlAnswer(), DdlAnswer(7), DdlAnswer(100, 8, (VChannelName("v0"),))]
)
def test_an_answer_is_read_as_it_was_written(answer: DdlAnswer) -> None:
    assert read_answer(write_answer(answer)) == answer


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"id": 1e999}', '{"vchannels": 5}', '{"id": "x"}', "[" * 5000]
)
def test_an_answer_that_is_damaged_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        read_answer(text)


def test_a_broadcast_without_an_answer_has_an_empty_one() -> None:
    assert read_answer("") == DdlAnswer()
