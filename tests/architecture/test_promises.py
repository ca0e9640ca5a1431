"""The table of promises names tests that exist, so that none of them is lost by a renaming."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS / "README.md"
NAMED = re.compile(r"([\w/]+\.py)::(\w+)")
WANTED = {*range(1, 39), 44, 45}


def test_every_promise_is_in_the_table() -> None:
    rows = [line.split("|")[1] for line in TABLE.read_text().splitlines() if line.startswith("| P")]
    assert {int(number) for row in rows for number in re.findall(r"P(\d+)", row)} >= WANTED


def test_every_test_in_the_table_exists() -> None:
    named = NAMED.findall(TABLE.read_text())
    lost = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^(async )?def {name}\(", (TESTS / "broker" / path).read_text(), re.M)
    ]
    assert named
    assert not lost
