"""`tidemark top` on a terminal, and `tidemark top --once` without one."""

import sys

from rich.table import Table
from rich.text import Text

from broker.cli.session import USAGE, address_of, fail, say_waits, with_client
from broker.cli.show.actor_tree import summary_of
from broker.cli.show.output import show
from broker.cli.top import panels
from broker.cli.top.broker_state import Rates, read_state


def show_once(server: str) -> None:
    """Print everything that the screen would show, once."""
    broker = with_client(server, read_state)
    rates = Rates.between(None, broker)
    tables = {
        "Channels": panels.channel_panel(broker, rates, wide=True),
        "Barriers": panels.barrier_panel(broker),
        "Broadcasts": panels.broadcast_panel(broker),
        "Locks": panels.lock_panel(broker),
        "Commits": panels.commit_panel(broker),
        "Trouble": panels.trouble_panel(broker),
    }
    shown = [_table(title, panel) for title, panel in tables.items() if panel.rows]
    show(
        Text(f"{address_of(server)} {broker.health.state} · {panels.summary(broker, rates)}"),
        *summary_of(broker.actors),
        *shown,
    )


def run_screen(server: str, every_s: float) -> None:
    """Run the screen until `q`. Exit code 2 without a terminal."""
    address = address_of(server)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # textual draws on stderr
        fail("top needs a terminal; pass --once to print everything once", USAGE)
    from broker.cli.top.screen import TopScreen

    say_waits(lambda _: None)  # the screen shows them

    TopScreen(address, every_s).run()


def _table(title: str, panel: panels.Panel) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for name in panel.columns:
        table.add_column(name, overflow="fold")
    for cells in panel.rows.values():
        table.add_row(*[Text(cell) for cell in cells])
    return table
