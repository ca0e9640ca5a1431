"""The generated tables: nothing in them is empty, and a stale page is named."""

import pytest
from gen_pages import filled, main
from pages import TABLES


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_row_of_a_table_says_what_it_means(name: str) -> None:
    rows = [line.split(" | ") for line in TABLES[name]().splitlines() if line.startswith("| ")]
    assert len(rows) > 3
    mute = [row[0] for row in rows if not row[-1].strip(" |")]
    assert not mute, f"{name}: add a sentence below the field of {mute}"


def test_what_stands_between_the_marks_is_replaced_and_the_rest_is_kept() -> None:
    page = "a\n<!-- generated: cli -->\nold\n<!-- /generated -->\nb\n"
    assert filled(page, {"cli": "new"}) == page.replace("old", "new")
    empty = "<!-- generated: cli -->\n<!-- /generated -->\n"
    assert filled(empty, {"cli": "new"}) == "<!-- generated: cli -->\nnew\n<!-- /generated -->\n"


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no generated table 'odd'"):
        filled("<!-- generated: odd -->\n<!-- /generated -->\n", {})


def test_the_pages_of_this_tree_are_fresh(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gen_pages.py", "--check"])
    assert main() == 0, capsys.readouterr().err
