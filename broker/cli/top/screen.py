"""The screen of `tidemark top`: tabs with the state of one broker, refreshed until `q`.

When the broker goes away, the first line says so, and the screen keeps trying to reconnect.
"""

from typing import ClassVar

import anyio
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from broker.cli.top import panels
from broker.cli.top.actor_tree_widget import ActorTreeWidget
from broker.cli.top.broker_state import BrokerState, Rates, read_state
from broker.client import Deadlines, TidemarkError, connect

DEADLINES = Deadlines(connect_s=3.0, open_s=3.0, call_s=3.0, close_s=0.2)
"""Short, because a user at a screen wants to know soon that the broker does not answer."""
EVERY_S_MIN, EVERY_S_MAX = 0.1, 60.0
WIDE_COLUMNS = 130


class TopScreen(App[None]):
    """The application behind `tidemark top`."""

    TITLE = "tidemark top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #heading { height: 1; }
    #heading { text-style: bold; }
    TabbedContent, ContentSwitcher, TabPane, TabPane > Vertical { height: 1fr; }
    TabPane { padding: 0; }
    ActorTreeWidget, DataTable { height: 1fr; scrollbar-size-horizontal: 1; }
    #broadcasts { height: 2fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("1", "tab('actors-tab')", "", show=False),
        Binding("2", "tab('channels-tab')", "", show=False),
        Binding("3", "tab('barriers-tab')", "", show=False),
        Binding("4", "tab('broadcasts-tab')", "", show=False),
        Binding("5", "tab('trouble-tab')", "", show=False),
        Binding("1-5", "", "panel", show=True, key_display="1-5"),
        Binding("p", "pause", "pause"),
        Binding("plus,equals_sign", "pace(0.5)", "faster", key_display="+"),
        Binding("minus", "pace(2)", "slower", key_display="-"),
        Binding("e", "expand(True)", "expand"),
        Binding("c", "expand(False)", "collapse"),
    ]

    def __init__(self, server: str, every_s: float) -> None:
        super().__init__()
        self.server = server
        self.every_s = every_s
        self.paused = False
        self.polls = 0
        self._before: BrokerState | None = None
        self._shown: BrokerState | None = None
        self._lost_s: float | None = None
        self._wake = anyio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        with TabbedContent():
            with TabPane("1 Actors", id="actors-tab"), Vertical():
                yield Static(id="heading")
                yield ActorTreeWidget(id="actors")
            with TabPane("2 Channels", id="channels-tab"):
                yield DataTable(id="channels", cursor_type="row", zebra_stripes=True)
            with TabPane("3 Barriers", id="barriers-tab"):
                yield DataTable(id="barriers", cursor_type="row", zebra_stripes=True)
            with TabPane("4 Broadcasts, commits", id="broadcasts-tab"), Vertical():
                yield DataTable(id="broadcasts", cursor_type="row", zebra_stripes=True)
                yield DataTable(id="locks", cursor_type="row", zebra_stripes=True)
                yield DataTable(id="commits", cursor_type="row", zebra_stripes=True)
            with TabPane("5 Trouble", id="trouble-tab"):
                yield DataTable(id="trouble", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start polling the broker."""
        self._set_headline(Text(f"{self.server}  connecting"))
        self.query_one(ActorTreeWidget).focus()
        self.run_worker(self._poll(), exclusive=True)

    def on_resize(self) -> None:
        """Draw the same state in the new width."""
        self._draw()

    def action_tab(self, name: str) -> None:
        """Show one panel."""
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name.removesuffix('-tab')}").focus()

    def action_pause(self) -> None:
        """Pause or continue."""
        self.paused = not self.paused
        self._draw()
        self._wake.set()

    def action_pace(self, factor: float) -> None:
        """Refresh more often, or less."""
        self.every_s = min(EVERY_S_MAX, max(EVERY_S_MIN, self.every_s * factor))
        self._draw()
        self._wake.set()

    def action_expand(self, everything: bool) -> None:
        """Open the whole tree, or only its top."""
        self.query_one(ActorTreeWidget).expand_levels(everything)

    async def _poll(self) -> None:
        while True:
            try:
                async with connect(self.server, deadlines=DEADLINES) as client:
                    while True:
                        if not self.paused:
                            self._update(await read_state(client))
                        await self._wait()
            except TidemarkError as error:
                self._show_lost(str(error))
            await self._wait()

    async def _wait(self) -> None:
        self._wake = anyio.Event()
        with anyio.move_on_after(self.every_s):
            await self._wake.wait()

    def _update(self, broker: BrokerState) -> None:
        self._before, self._shown, self._lost_s = self._shown, broker, None
        self.polls += 1
        self._draw()

    def _show_lost(self, why: str) -> None:
        now_s = anyio.current_time()
        self._lost_s = now_s if self._lost_s is None else self._lost_s
        told = f" {self.server} does not answer for {now_s - self._lost_s:.0f} s: {why} "
        self._set_headline(Text(told, style="bold white on red"))
        self._before = None

    def _draw(self) -> None:
        broker = self._shown
        if broker is None or not self._is_drawn():
            return
        rates = Rates.between(self._before, broker)
        if self._lost_s is None:
            self._set_headline(self._headline(broker, rates))
        tree = self.query_one(ActorTreeWidget)
        self.query_one("#heading", Static).update(tree.heading(self.size.width))
        tree.update_rows(panels.actor_rows(broker, rates), self.size.width)
        wide = self.size.width >= WIDE_COLUMNS
        tables = {
            "channels": panels.channel_panel(broker, rates, wide=wide),
            "barriers": panels.barrier_panel(broker),
            "broadcasts": panels.broadcast_panel(broker),
            "locks": panels.lock_panel(broker),
            "commits": panels.commit_panel(broker),
            "trouble": panels.trouble_panel(broker),
        }
        for name, panel in tables.items():
            _fill(self.query_one(f"#{name}", DataTable), panel)

    def _headline(self, broker: BrokerState, rates: Rates) -> Text:
        state = broker.health.state
        line = Text(f"{self.server} ")
        line.append(f" {state} ", "black on green" if state == "healthy" else "white on red")
        pace = "paused" if self.paused else f"{self.every_s:g} s"
        line.append(f" {pace}", style="dim")
        return line.append(f"  {panels.summary(broker, rates)}")

    def _is_drawn(self) -> bool:
        """Whether the widgets exist: polling runs a moment longer than the screen."""
        return bool(self.query("#summary")) and bool(self.query("#trouble"))

    def _set_headline(self, line: Text) -> None:
        if not self._is_drawn():
            return
        line.no_wrap, line.overflow = True, "ellipsis"
        self.query_one("#summary", Static).update(line)


def _fill(table: "DataTable[Text]", panel: panels.Panel) -> None:
    """Replace the contents of the table; keep the scroll position and the chosen row."""
    titles = [str(column.label) for column in table.ordered_columns]
    at, scrolled = table.cursor_row, table.scroll_offset
    table.clear(columns=titles != list(panel.columns))
    if not table.columns:
        table.add_columns(*panel.columns)
    for key, cells in panel.rows.items():
        style = "bold red" if key in panel.odd else ""
        table.add_row(*[_cell(cell, style) for cell in cells], key=key)
    table.move_cursor(row=min(at, len(panel.rows) - 1), animate=False)
    table.scroll_to(scrolled.x, scrolled.y, animate=False)


def _cell(text: str, style: str) -> Text:
    number = text[:1].isdigit() or text == panels.GONE
    return Text(text, style=style, justify="right" if number else "left")
