"""The table of promises names tests that exist, so that none of them is lost by a renaming."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS / "README.md"
NAMED = re.compile(r"([\w/]+\.py)::(\w+)")
WANTED = set(range(1, 46))
NOT_BUILT = set(range(39, 43))
PAGES = ("README.md", "broker/edge/README.md")
"""They must name the promises that are not kept yet."""


def numbers(text: str) -> set[int]:
    """The numbers of promises in it, also of `P39 to P42`."""
    ranges = re.findall(r"P(\d+) to P(\d+)", text)
    covered = {number for first, last in ranges for number in range(int(first), int(last) + 1)}
    return covered | {int(number) for number in re.findall(r"P(\d+)", text)}


def table_rows() -> list[list[str]]:
    """Promise, text, tests of each row."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| P")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_promise_is_in_the_table() -> None:
    assert {number for row in table_rows() for number in numbers(row[0])} == WANTED


def test_a_row_names_tests_or_says_that_the_promise_is_not_kept_yet() -> None:
    not_yet = [row for row in table_rows() if row[2].startswith("not yet: ")]
    assert {number for row in not_yet for number in numbers(row[0])} == NOT_BUILT
    assert all(NAMED.search(row[2]) for row in table_rows() if row not in not_yet)


def test_what_is_not_built_is_said_where_users_look() -> None:
    for page in PAGES:
        assert numbers((TESTS.parent / page).read_text()) == NOT_BUILT, page


def test_every_test_in_the_table_exists() -> None:
    named = NAMED.findall(TABLE.read_text())
    lost = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^(async )?def {name}\(", (TESTS / "broker" / path).read_text(), re.M)
    ]
    assert named
    assert not lost
