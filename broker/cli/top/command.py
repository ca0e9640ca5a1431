"""`tidemark top` on a terminal, and `--once` for everybody else."""

import sys

from rich.table import Table
from rich.text import Text

from broker.cli.session import USAGE, address_of, fail, with_client
from broker.cli.show.actor_tree import summary_of
from broker.cli.show.questions import show
from broker.cli.top import rows
from broker.cli.top.look import Rates, take


def show_once(server: str) -> None:
    """Everything the screen would show, one below the other, as it is now."""
    look = with_client(server, take)
    rates = Rates.between(None, look)
    panels = {
        "Channels": rows.channel_panel(look, rates, wide=True),
        "Barriers": rows.barrier_panel(look),
        "Broadcasts": rows.broadcast_panel(look),
        "Locks": rows.lock_panel(look),
        "Commits": rows.commit_panel(look),
        "Trouble": rows.trouble_panel(look),
    }
    shown = [_table(title, panel) for title, panel in panels.items() if panel.rows]
    show(
        Text(f"{address_of(server)} {look.health.state} · {rows.summary(look, rates)}"),
        *summary_of(look.actors),
        *shown,
    )


def run_board(server: str, every_s: float) -> None:
    """The screen, until `q`. Ends with 2 where there is no terminal."""
    address = address_of(server)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # textual draws on stderr
        fail("top needs a terminal; --once prints one look without", USAGE)
    from broker.cli.top.board import Board

    Board(address, every_s).run()


def _table(title: str, panel: rows.Panel) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for name in panel.columns:
        table.add_column(name, overflow="fold")
    for cells in panel.rows.values():
        table.add_row(*[Text(cell) for cell in cells])
    return table
