"""The screen where only ASCII can be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.top.ascii_text import ascii_text, shows_unicode


@given(st.text())
def test_the_text_keeps_its_length_and_is_ascii(text: str) -> None:
    shown = ascii_text(text)
    assert len(shown) == len(text)
    assert shown.isascii()


def test_levels_of_a_trend_can_be_told_apart() -> None:
    assert ascii_text("▁▂▃▄▅▆▇█ a…b ▼▲") == "_.:-=+*# a~b v^"


@pytest.mark.parametrize(
    ("encoding", "shows"),
    [("utf-8", True), ("UTF8", True), ("utf_16", True), ("ascii", False), ("latin-1", False),
     (None, False)],
)  # fmt: skip
def test_only_encodings_of_unicode_show_everything(encoding: str | None, shows: bool) -> None:
    assert shows_unicode(encoding) is shows
