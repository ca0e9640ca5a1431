"""What is said about what is stored."""

import pytest

from broker.cli.produce.input_file import Place
from broker.cli.produce.tally import Tally

FILES = ("a.txt", "b.txt")


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (Tally("message"), "nothing is stored"),
        (
            Tally("message", 1, place=Place("stdin", "line", 3, 17), rest=["stdin"]),
            (
                "1 message is stored, up to line 3 of stdin, byte 17;"
                " to go on: --skip 3, with the same input"
            ),
        ),
        (
            Tally("row", 2500, place=Place("a.txt", "row", 2500), rest=FILES),
            "2,500 rows are stored, up to row 2,500 of a.txt; to go on: --skip 2500 a.txt b.txt",
        ),
        (
            Tally("row", 10, place=Place("a.txt", "row", 8), beyond=2, doubtful=3, rest=FILES),
            (
                "8 rows are stored, up to row 8 of a.txt, and 2 of those behind that; up to 3"
                " more may be stored; to go on: --skip 8 a.txt b.txt"
            ),
        ),
        (Tally("row", 5, rest=["b.txt"]), "5 rows are stored; to go on: b.txt"),
        (
            Tally("message", doubtful=9, rest=["stdin"]),
            (
                "0 messages are stored; up to 9 more may be stored; to go on: again, with the same"
                " input"
            ),
        ),
    ],
)
def test_the_stored_part_and_the_way_on_are_said(tally: Tally, said: str) -> None:
    assert tally.stored() == said
    assert tally.say("what happened") == f"what happened; {said}"


def test_one_message_is_one_message() -> None:
    tally = Tally("message", 1, 1, started_s=1.0, ended_s=2.0, transactions=1)
    assert tally.line() == "1 message, 1 byte in 1.00 s (1 message/s, 1 transaction)\n"
    assert tally.json() == '{"messages": 1, "bytes": 1, "seconds": 1.0, "transactions": 1}\n'
