"""The demonstration of groups, small: on flights that are made up, with the kill and the poison."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from runs.demo_groups import POISON, demonstrate
from runs.groups_demo.verdict import Outcome, PutAside, Share, problems, table_of


def made_up(count: int) -> pa.Table:
    """Every seventh flight was cancelled."""
    every = range(count)
    columns = {
        "number": list(every),
        "carrier": ["UA" if it % 2 else "DL" for it in every],
        "flight": [it % 100 for it in every],
        "arr_delay": [None if it % 7 == 0 else it % 50 - 10 for it in every],
        "air_time": [None if it % 7 == 0 else 227.0 for it in every],
    }
    return pa.table(columns)


def test_every_flight_is_processed_once_whatever_becomes_of_the_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demonstrate(tmp_path, made_up(12_000)) == 0
    told = capsys.readouterr().out
    assert "bob is killed with kill -9" in told
    assert "12,000 of 12,000 flights once" in told
    assert "'This is no flight.'" in told
    assert "Checked: 12,000 flights" in told


def outcome() -> Outcome:
    """Three flights, each processed once, and the poison."""
    letter = PutAside(POISON, "it is no JSON")
    shares = [Share("ann", 3, 0, "worked to the end")]
    return Outcome(3, Counter(range(3)), [letter], POISON, shares)


def test_what_is_as_promised_is_not_told() -> None:
    assert list(problems(outcome())) == []
    assert table_of(outcome()).row_count == 3


def test_each_broken_promise_is_told() -> None:
    good = outcome()
    letter = good.dead[0]
    for broken, words in (
        (replace(good, processed=Counter([0, 2])), "1 flights were not processed"),
        (replace(good, processed=Counter([0, 1, 1, 2])), "1 flights were processed more than once"),
        (replace(good, processed=Counter([0, 1, 2, 9])), "1 numbers are no flights, such as 9"),
        (replace(good, dead=[]), "the poison message is 0 times"),
        (replace(good, dead=[letter, letter]), "the poison message is 2 times"),
        (replace(good, dead=[letter, replace(letter, payload=b"{}")]), "1 other messages"),
    ):
        found = list(problems(broken))
        assert len(found) == 1, found
        assert words in found[0]
