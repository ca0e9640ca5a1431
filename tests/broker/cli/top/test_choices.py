"""What the user chooses: order, filter, scrolling."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.cli.top.choices import Choices, Order, chosen_rows
from broker.cli.top.chrome import PAGES
from broker.cli.top.look import Look
from broker.cli.top.picture import page_of
from broker.cli.top.section import (
    Page,
    PageRow,
    Section,
    count_column,
    name_column,
    text_column,
    trend_column,
)
from tests.broker.cli.top.broker_states import broker_state

COLUMNS = (name_column("n", "name"), count_column("c", "count"), trend_column("trend"))
RESERVED = set("qpre?/<>+-=,. 1234567")


def section(*rows: tuple[Any, ...], order: str = "", title: str = "t") -> Section:
    return Section(title, COLUMNS, [PageRow((*it, [])) for it in rows], "", order=order, down=True)


def names(found: list[PageRow]) -> list[str]:
    return [row.values[0] for row in found]


TABLE = section(("p_10", 3), ("p_9", None), ("p_1", 7), ("x", 3), order="c")
PAGE = Page("p", (TABLE, section(("other", 1), title="u")))


def test_figures_are_sorted_largest_first_and_names_as_people_count() -> None:
    choices = Choices()
    assert names(chosen_rows(TABLE, choices.order_of(PAGE, TABLE), "")) == [
        "p_1",
        "p_10",
        "x",
        "p_9",
    ]
    by_name = choices.sorted_by_letter(PAGE, "n")
    assert names(chosen_rows(TABLE, by_name.order_of(PAGE, TABLE), "")) == [
        "p_1", "p_9", "p_10", "x",
    ]  # fmt: skip
    again = by_name.sorted_by_letter(PAGE, "n")
    assert names(chosen_rows(TABLE, again.order_of(PAGE, TABLE), ""))[0] == "x"
    assert choices.sorted_by_letter(PAGE, "z") == choices
    assert choices.sorted_by(PAGE, TABLE, 2) == choices  # a trend has no order


def test_unknown_values_come_last_in_both_directions() -> None:
    for down in (True, False):
        assert names(chosen_rows(TABLE, Order(1, down), ""))[-1] == "p_9"


def test_reversing_and_choosing_the_column_beside() -> None:
    choices = Choices()
    assert choices.reversed(PAGE).order_of(PAGE, TABLE) == Order(1, False)
    beside = choices.sorted_beside(PAGE, 1)
    assert beside.order_of(PAGE, TABLE) == Order(0, False)
    assert beside.sorted_beside(PAGE, -1).order_of(PAGE, TABLE) == Order(1, True)
    other = choices.next_section(PAGE)
    assert other.active_section(PAGE) == 1
    assert other.reversed(PAGE).order_of(PAGE, TABLE) == choices.order_of(PAGE, TABLE)
    assert other.next_section(PAGE).active_section(PAGE) == 0


@given(st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.integers()))), st.booleans())
def test_sorting_loses_no_row(rows: list[tuple[str, int | None]], down: bool) -> None:
    table = section(*rows)
    for order in (Order(None, down), Order(0, down), Order(1, down)):
        assert sorted(names(chosen_rows(table, order, ""))) == sorted(it for it, _ in rows)


def test_the_filter_looks_at_names_and_texts_without_regard_to_case() -> None:
    columns = (name_column("n", "name"), text_column("state"), count_column("c", "count"))
    rows = [
        PageRow(("Flights", "ok", 12)),
        PageRow(("orders", "FLYING", 1)),
        PageRow(("x", "y", 12)),
    ]
    table = Section("t", columns, rows, "")
    order = Order(None, False)
    assert names(chosen_rows(table, order, "fl")) == ["Flights", "orders"]
    assert names(chosen_rows(table, order, "12")) == []


@given(st.lists(st.integers(-20, 20), max_size=10))
def test_scrolling_stays_within_the_rows(steps: list[int]) -> None:
    choices = Choices()
    for step in steps:
        choices = choices.scrolled(PAGE, TABLE, choices.scroll_of(PAGE, TABLE) + step)
        assert 0 <= choices.scroll_of(PAGE, TABLE) < len(TABLE.rows)


def test_letters_of_a_page_are_unique_stand_in_their_titles_and_are_no_keys_of_the_screen() -> None:
    for number in range(len(PAGES)):
        page = page_of(Look(broker_state()), Choices(number))
        assert page.name == PAGES[number]
        columns = [it for part in page.sections for it in part.columns]
        letters = [it.key for it in columns if it.key]
        assert len(set(letters)) == len(letters), (page.name, letters)
        assert not set(letters) & RESERVED
        assert all(it.key in it.title for it in columns)
        assert all(len(it.title) > 0 for it in columns)
        for part in page.sections:
            assert part.order in ("", *[it.key for it in part.columns])
            assert part.title in ("broker",) or part.empty
