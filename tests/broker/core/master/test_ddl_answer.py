"""The answer to a change, as text and back."""

import pytest

from broker.core.master.ddl_answer import DdlAnswer, read_answer, write_answer
from broker.model.ids import VChannelName


@pytest.mark.parametrize(
    "answer", [DdlAnswer(), DdlAnswer(7), DdlAnswer(100, 8, (VChannelName("v0"),))]
)
def test_an_answer_is_read_as_it_was_written(answer: DdlAnswer) -> None:
    assert read_answer(write_answer(answer)) == answer


def test_a_broadcast_without_an_answer_has_an_empty_one() -> None:
    assert read_answer("") == DdlAnswer()
