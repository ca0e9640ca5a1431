"""Sections as lines: whatever the width, numbers are whole and names keep both ends."""

import itertools
import string

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from broker.cli.top.choices import Choices
from broker.cli.top.layout import (
    ELLIPSIS,
    NAME_MIN,
    draw_page,
    elide_end,
    elide_middle,
    fit,
    shares,
    visible,
)
from broker.cli.top.section import (
    Page,
    PageColumn,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
    trend_column,
)

COLUMNS = (
    name_column("n", "name"),
    count_column("c", "count"),
    size_column("s", "size", 2),
    span_column("a", "age", 1),
    text_column("state", 3),
    trend_column("trend"),
)
WORDS = st.text(st.sampled_from(string.ascii_letters + "日本_-\n\x1b"), max_size=60)
NUMBERS = st.one_of(st.none(), st.integers(0, 1 << 63), st.floats(0, 1e18))
ROWS = st.lists(
    st.builds(
        lambda name, count, size, age, state, trend, odd: PageRow(
            (name, count, size, age, state, trend), odd
        ),
        *(WORDS, NUMBERS, NUMBERS, NUMBERS, WORDS),
        st.lists(st.one_of(st.none(), st.floats(0, 10)), max_size=70),
        st.booleans(),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ROWS, st.integers(40, 200), st.integers(1, 30))
def test_no_line_is_wider_than_the_screen_and_no_number_is_cut(
    rows: list[PageRow], width: int, height: int
) -> None:
    page = Page("p", (Section("t", COLUMNS, rows, "nothing"), Section("u", COLUMNS, [], "none")))
    body = draw_page(page, Choices(), width, height)
    assert len(body.lines) <= height
    assert all(cell_len(line.plain) <= width for line in body.lines)
    assert not any(each in line.plain for line in body.lines for each in "\n\x1b")
    placed = body.headings[0][1]
    for row, line in zip(rows, body.lines[1 : 1 + body.shown[0]], strict=False):
        rest = line.plain
        for it in placed:
            if it.column.kind == "figure":
                whole = it.column.text(row.values[it.number])
                assert len(whole) <= it.width
                assert whole in rest
                rest = rest[rest.index(whole) + len(whole) :]


@given(ROWS, st.integers(40, 250))
def test_columns_stand_side_by_side_and_those_that_never_leave_stay(
    rows: list[PageRow], width: int
) -> None:
    placed = fit(COLUMNS, rows, width)
    for left, right in itertools.pairwise(placed):
        assert left.start + left.width < right.start
    assert placed[-1].start + placed[-1].width <= width
    if width >= NAME_MIN + 5 + 12 + 2 * 3:
        assert {0, 1, 5} <= {it.number for it in placed}


def test_a_wide_screen_has_more_columns_and_a_narrow_one_drops_the_least_important() -> None:
    titles = [[it.column.title for it in fit(COLUMNS, [], width)] for width in (120, 60, 52, 42)]
    assert titles[0] == ["name", "count", "size", "age", "state", "trend"]
    assert titles[1] == ["name", "count", "size", "age", "trend"]
    assert titles[2] == ["name", "count", "age", "trend"]
    assert titles[3] == ["name", "count", "trend"]


@given(WORDS, st.integers(0, 80))
def test_names_lose_their_middle_and_texts_their_end(name: str, width: int) -> None:
    middle, end = elide_middle(name, width), elide_end(name, width)
    assert cell_len(middle) <= width
    assert cell_len(end) <= width
    if cell_len(name) <= width:
        assert middle == end == name
    elif width >= 3:
        assert middle.count(ELLIPSIS) == 1
        head, tail = middle.split(ELLIPSIS)
        assert name.startswith(head)
        assert name.endswith(tail)
        assert end.endswith(ELLIPSIS)


def test_a_long_name_keeps_what_tells_it_from_its_neighbours() -> None:
    assert elide_middle("measurements_of_plant_2019", 15) == "measure…nt_2019"
    assert elide_end("storage refused: full", 10) == "storage r…"


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 100))
def test_a_height_is_shared_and_small_needs_are_met_first(needs: list[int], height: int) -> None:
    given_ = shares(needs, height)
    assert sum(given_) == min(sum(needs), height)
    assert all(got <= need for got, need in zip(given_, needs, strict=True))
    for got, need in zip(given_, needs, strict=True):
        # Who did not get all has no less than anybody else, but for the last line.
        assert got == need or got >= max(given_) - 1


@given(st.integers(0, 50), st.integers(-5, 60), st.integers(0, 30))
def test_what_is_shown_of_the_rows_says_which_they_are(count: int, first: int, room: int) -> None:
    rows = [PageRow((n,)) for n in range(count)]
    part = visible(rows, first, room)
    assert len(part.rows) + bool(part.note) <= max(room, bool(part.note))
    assert bool(part.note) == (room > 0 and count > room)
    if part.rows and part.note:
        numbers = [row.values[0] for row in part.rows]
        assert part.note == f"rows {numbers[0] + 1}-{numbers[-1] + 1} of {count}"
        assert numbers == list(range(numbers[0], numbers[0] + room - 1))


def test_a_column_that_is_sorted_by_is_marked_and_the_letter_is_underlined() -> None:
    rows = [PageRow(("a", 1, 1, 1, "", [])), PageRow(("b", 2, 2, 2, "", []))]
    section = Section("t", COLUMNS, rows, "", order="c", down=True)
    body = draw_page(Page("p", (section,)), Choices(), 120, 10)
    heading = body.lines[0]
    assert "▼count" in heading.plain
    assert body.lines[1].plain.split()[0] == "b"
    underlined = [
        heading.plain[it.start : it.end] for it in heading.spans if "underline" in str(it.style)
    ]
    assert underlined == ["n", "c", "s", "a"]


def test_a_row_that_needs_attention_has_a_mark_besides_its_colour() -> None:
    section = Section("t", (PageColumn("", "x"),), [PageRow((1,)), PageRow((2,), odd=True)], "")
    lines = draw_page(Page("p", (section,)), Choices(), 60, 10).lines
    assert [line.plain[:2] for line in lines[1:]] == ["  ", "! "]


def test_an_empty_section_says_what_would_be_there() -> None:
    words = "No thing is here. Make one with `tidemark thing create`, or wait until one comes by."
    section = Section("t", COLUMNS, [], words)
    lines = draw_page(Page("p", (section,)), Choices(), 60, 10).lines
    assert " ".join(" ".join(line.plain.split()) for line in lines[1:]) == words
    filled = Section("t", COLUMNS, [PageRow(("a", 1, 1, 1, "", []))], words)
    (_, said) = draw_page(Page("p", (filled,)), Choices(needle="zz"), 60, 10).lines
    assert said.plain.strip() == "Nothing here contains 'zz'; Esc clears the filter."
