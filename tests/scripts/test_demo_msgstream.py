"""The demonstration of message streams, small: on flights that are made up, with the kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runs.demo_msgstream import demonstrate
from runs.msgstream_demo.verdict import Outcome, problems, table_of


def test_the_packs_of_a_reader_that_was_killed_are_what_was_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = range(3000)
    columns = {"number": list(every), "carrier": ["UA"] * 3000, "flight": [1] * 3000}
    code = demonstrate(tmp_path, pa.table(columns), spark=False)
    told = capsys.readouterr().out
    assert code == 0, told
    assert "the reader is killed with kill -9" in told
    assert "Checked: 3,000 flights" in told


def pack(begin: int, end: int, inserted: list[int], deleted: list[int]) -> dict[str, Any]:
    return {"begin": begin, "end": end, "inserted": inserted, "deleted": deleted}


PACKS = [pack(0, 10, [1, 10], []), pack(10, 20, [2], [10])]
GOOD = Outcome([1, 2, 10], PACKS, 2, [{1, 2}, {1, 2}], 0, 3, 2, 2, 4)


def test_what_is_as_it_was_sent_is_not_told() -> None:
    assert list(problems(GOOD)) == []
    assert table_of(GOOD).row_count == 8


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (replace(GOOD, packs=[PACKS[0], pack(11, 20, [2], [10])]), "pack 1 begins at 11"),
        (replace(GOOD, packs=[PACKS[0], pack(10, 20, [], [10])]), "1 inserted flights were not"),
        (replace(GOOD, packs=[PACKS[0], pack(10, 20, [2], [])]), "1 deleted flights were not"),
        (replace(GOOD, packs=[*PACKS, pack(20, 30, [9], [])]), "1 numbers were not inserted"),
        (replace(GOOD, packs=[*PACKS, pack(20, 30, [2], [])]), "more than once, such as 2"),
        (replace(GOOD, held=[{1, 2}, {1}]), "write node 2 holds 1 flights"),
        (replace(GOOD, late=1), "1 messages came behind a tick"),
        (replace(GOOD, lives=1), "the reader was not killed"),
        (replace(GOOD, k2s=0), "no tick passed the hard barrier"),
        (replace(GOOD, by_spark=1), "1 that Spark read behind it are not the 4 of the log"),
    ],
)
def test_each_broken_promise_is_told(broken: Outcome, words: str) -> None:
    (told,) = problems(broken)
    assert words in told
