"""What a table keeps whole, whatever the width."""

from io import StringIO

import pytest
from rich.console import Console

from broker.cli.show.channel_table import channel_columns
from broker.cli.show.tables import Column, fitted, moment, natural_order, short_moment, table_width
from tests.broker.cli.top.broker_states import channel

NAMES = [f"by-dev-rootcoord-dml_{it}" for it in range(16)]
COLUMNS = [
    Column("name", NAMES),
    Column("address", ["127.0.0.1:19531"] * 16, leaves=2),
    Column("closed", ["2026-11-21 07:18:50Z"] * 16, ["07:18:50Z"] * 16),
    Column("node", ["1"] * 16, leaves=1),
]


def printed(width: int) -> str:
    console = Console(file=StringIO(), width=width)
    table = fitted(COLUMNS, console)
    console.width = max(width, table_width(table, console))
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [200, 70, 60, 40, 36, 10])
def test_no_name_is_cut_at_any_width(width: int) -> None:
    shown = printed(width).splitlines()
    assert [line.split()[0] for line in shown] == ["name", *NAMES]
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(shown)


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (70, ["name", "address", "closed", "node"]),
        (60, ["name", "address", "closed", "node"]),
        (45, ["name", "closed", "node"]),
        (10, ["name", "closed"]),
    ],
)
def test_what_matters_least_leaves_first(width: int, titles: list[str]) -> None:
    assert printed(width).splitlines()[0].split() == titles


def test_moments_are_shortened_before_any_column_leaves() -> None:
    assert "2026-11-21 07:18:50Z" in printed(70)
    assert "2026-11-21" not in printed(60)


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    assert sorted(sorted(NAMES), key=natural_order) == NAMES
    assert sorted(["b_2", "a_10", "a_9", "a"], key=natural_order) == ["a", "a_9", "a_10", "b_2"]


def test_a_moment_is_utc_to_the_second() -> None:
    assert moment(1_000_000_001_999) == "2001-09-09 01:46:41Z"
    assert moment(0) == "never"


def test_a_short_moment_tells_the_day_unless_it_is_the_same() -> None:
    assert short_moment(1_000_000_001_999, 1_000_000_500_000) == "01:46:41Z"
    assert short_moment(1_000_000_001_999, 1_000_100_000_000) == "2001-09-09"
    assert short_moment(0, 1_000_000_500_000) == "never"


@pytest.mark.parametrize(("nodes", "shown"), [(1, False), (3, True)])
def test_where_channels_are_on_several_nodes_a_narrow_terminal_says_which(
    nodes: int, shown: bool
) -> None:
    name = "by-dev-rootcoord-dml_15"
    rows = [channel(name, node_id=1 + it % nodes, next_id=9_123_456) for it in range(4)]
    table = fitted(channel_columns(rows), Console(width=60))
    assert ("node" in [column.header for column in table.columns]) is shown
