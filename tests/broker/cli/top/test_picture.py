"""The whole screen as text, at the two sizes that people use, against a stored picture.

A change that is meant: `python -m tests.broker.cli.top.test_picture` writes the pictures anew.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from broker.cli.top.choices import Choices
from broker.cli.top.chrome import PAGES, SHORT, Status, joined, page_at
from broker.cli.top.look import Look, note_rates
from broker.cli.top.picture import Picture, draw
from broker.cli.top.rates import History, Rates
from tests.broker.cli.top.broker_states import (
    HEALTH,
    TROUBLE,
    broker_state,
    busy_states,
    collection,
)

PICTURES = Path(__file__).parent / "pictures"
SIZES = ((80, 24), (160, 50))
STATUS = Status("127.0.0.1:19531", 1.0)
LOST = replace(
    STATUS,
    lost="cannot reach 127.0.0.1:19531: connection refused",
    lost_s=42.0,
    as_of="08:00:00Z",
)


def busy() -> Look:
    before, now = busy_states()
    rates, history = Rates.between(before, now), History()
    assert rates.flows is not None
    for second in range(2, 60, 2):
        flows = {
            name: replace(it, messages=it.messages * second) for name, it in rates.flows.items()
        }
        if not 20 < second < 32:  # an outage
            note_rates(history, replace(now, at_s=12.0 + second - 60), replace(rates, flows=flows))
    note_rates(history, now, rates)
    return Look(now, rates, history)


def pictures() -> dict[str, str]:
    look, found = busy(), {}
    for width, height in SIZES:
        for number, name in enumerate(PAGES):
            picture = draw(look, Choices(number, expanded=width > 80), STATUS, width, height)
            found[f"{name}_{width}x{height}"] = joined(picture.lines)
    found["help_80x24"] = joined(draw(look, Choices(help=True), STATUS, 80, 24).lines)
    found["lost_80x24"] = joined(draw(look, Choices(), LOST, 80, 24).lines)
    found["waiting_80x24"] = joined(draw(None, Choices(), LOST, 80, 24).lines)
    found["empty_80x24"] = joined(draw(Look(broker_state()), Choices(), STATUS, 80, 24).lines)
    return found


@pytest.mark.parametrize("name", list(pictures()))
def test_the_screen_is_as_it_is_stored(name: str) -> None:
    assert pictures()[name] + "\n" == (PICTURES / f"{name}.txt").read_text()


def test_no_picture_is_stored_that_nobody_draws() -> None:
    assert {it.stem for it in PICTURES.iterdir()} == set(pictures())


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 220),
    st.integers(1, 70),
    st.integers(0, len(PAGES) - 1),
    st.sampled_from(["", "fl", "no such name"]),
    st.booleans(),
)
def test_whatever_the_size_the_screen_is_exactly_full(
    width: int, height: int, page: int, needle: str, lost: bool
) -> None:
    choices = Choices(page, needle, expanded=True)
    for look in (busy(), None):
        picture = draw(look, choices, LOST if lost else STATUS, width, height)
        assert len(picture.lines) == height
        assert all(cell_len(line.plain) <= width for line in picture.lines)


def test_a_thousand_collections_are_scrolled_through_and_the_cursors_stay_in_sight() -> None:
    many = [collection(f"collection_{n}", n) for n in range(1000)]
    look = Look(replace(busy_states()[1], collections=many, traffic=(), actors=()))
    choices = Choices()
    first = draw(look, choices, STATUS, 80, 24)
    assert first.page is not None
    section = first.page.sections[0]
    text = joined(first.lines)
    assert "rows 1-15 of 1,000" in text
    assert "nightly-report" in text
    last = draw(look, choices.scrolled(first.page, section, 10**9), STATUS, 80, 24)
    assert "rows 986-1,000 of 1,000" in joined(last.lines)
    found = joined(draw(look, replace(choices, needle="_777"), STATUS, 80, 24).lines)
    assert "collection_777" in found
    assert "collection_778" not in found


@pytest.mark.parametrize("number", range(len(PAGES)))
def test_the_whole_help_is_seen_in_a_small_window(number: int) -> None:
    picture = draw(busy(), Choices(number, help=True), STATUS, 80, 24)
    assert picture.page is not None
    shown = " ".join(" ".join(line.plain.split()) for line in picture.lines)
    assert all(note in shown for note in picture.page.notes)


def test_trouble_is_seen_on_every_page() -> None:
    health = replace(HEALTH, state="degraded", troubles=TROUBLE)
    look = Look(broker_state(health=health, missing={"cursors": "away"}))
    for number in range(len(PAGES)):
        text = joined(draw(look, Choices(number), STATUS, 80, 24).lines)
        assert " ! degraded " in text
        assert "6 health !2" in text


def test_a_click_on_a_tab_finds_its_page() -> None:
    line = picture_line(draw(busy(), Choices(), STATUS, 80, 24), 2)
    for number, name in enumerate(PAGES):
        shown = name if number == 0 else SHORT.get(name, name)
        assert page_at(line.index(shown), busy(), 0, 80) == number
    assert page_at(79, busy(), 0, 80) is None


@pytest.mark.parametrize("page", range(len(PAGES)))
def test_where_the_names_of_pages_do_not_fit_their_numbers_do(page: int) -> None:
    look = Look(broker_state(health=replace(HEALTH, troubles=TROUBLE)))
    line = picture_line(draw(look, Choices(page), STATUS, 60, 10), 2)
    assert f"[{page + 1} {PAGES[page]}" in line
    assert "6 health !1" in line if PAGES[page] == "health" else "6 !1" in line
    assert page_at(line.index("[") + 1, look, page, 60) == page
    assert page_at(line.index("7"), look, page, 60) == 6


def picture_line(picture: Picture, number: int) -> str:
    return picture.lines[number].plain


if __name__ == "__main__":
    for stem, text in pictures().items():
        (PICTURES / f"{stem}.txt").write_text(text + "\n")
