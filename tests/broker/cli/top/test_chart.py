"""Bars of rates: as high as their values, of the size that was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from broker.cli.top.chart import LINES_MAX, LINES_MIN, Chart, draw_chart, draw_charts

VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=12, max_size=60)
HEIGHTS = {block: eighths for eighths, block in enumerate(" ▁▂▃▄▅▆▇█")}


@given(VALUES, st.integers(68, 200), st.integers(LINES_MIN, LINES_MAX))
def test_bars_are_as_high_as_their_values(
    values: list[float | None], width: int, height: int
) -> None:
    lines = draw_chart(Chart("in", values, 5.0), width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}
    each = (width - 8) // len(values)
    bars = [line[8:] for line in lines[1:-1]]
    highs = [sum(HEIGHTS[bar[n * each]] for bar in bars) for n in range(len(values))]
    known = [(value, high) for value, high in zip(values, highs, strict=True) if value is not None]
    for value, high in zip(values, highs, strict=True):
        assert (high == 0) == (value is None)  # nothing measured is not the same as 0
    assert [high for _, high in sorted(known)] == sorted(high for _, high in known)
    highest = max((value for value, _ in known), default=0.0)
    if highest > 0:
        assert max(known)[1] == 8 * (height - 2)
    assert lines[-1].rstrip().endswith("now")
    assert "ago" in lines[-1]


def test_charts_stand_side_by_side_only_where_each_has_room() -> None:
    charts = [Chart("in", [1.0] * 60, 5.0), Chart("out", [2.0] * 60, 5.0)]
    for width, count in ((80, 1), (138, 1), (139, 2), (160, 2)):
        lines = draw_charts(charts, width, 10)
        assert len(lines) == 10
        assert all(len(line) <= width for line in lines)
        assert ("out" in lines[0]) == (count == 2)
    assert draw_charts(charts, 80, LINES_MIN - 1) == []
    assert draw_charts([], 80, 20) == []
    assert draw_charts([Chart("in", [None] * 60, 5.0)], 80, 20) == []
    assert len(draw_charts(charts, 80, 100)) == LINES_MAX
    assert "5.0 min ago" in draw_charts(charts, 80, 10)[-1]
