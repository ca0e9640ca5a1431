"""Pages beside the tests name tests that exist, so that none is lost by a renaming."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"\b([\w/]+\.py)::(\w+)")
ROOMS = ("master", "msgstream", "node/groups", "rocksmq")
PAGES = tuple(TESTS / f"broker/{room}/README.md" for room in ROOMS)
"""Their paths begin in `tests`. `tests/architecture` has the table of promises."""
ROW = re.compile(r"^\| (?!---|item |example |input |# )(.+) \|$", re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TESTS)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text())
    lost = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).exists()
        or not re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.M)
    ]
    assert named
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TESTS)))
def test_every_row_of_a_table_names_a_test(page: Path) -> None:
    rows = [row for row in ROW.findall(page.read_text()) if not NAMED.search(row)]
    assert not rows
