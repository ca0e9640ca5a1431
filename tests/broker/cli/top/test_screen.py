"""The live screen over a real broker: what it shows, its keys, and a broker that comes and goes."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from broker.cli.top.actor_tree_widget import ActorTreeWidget
from broker.cli.top.screen import TopScreen
from broker.client import connect
from broker.client.cluster.targets import NewVChannel
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

DEADLINE_S = 60.0
EVERY_S = 0.1
ORACLE = "/root/coordinator/oracle"


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not true():
            await pilot.pause(0.02)


def first_line(screen: TopScreen) -> str:
    return str(screen.query_one("#summary", Static).content)


def shown(screen: TopScreen) -> dict[str, str]:
    tree = screen.query_one(ActorTreeWidget)
    return {str(node.data): str(node.label) for node in tree.root.tree._tree_nodes.values()}


def folds(screen: TopScreen) -> dict[str, bool]:
    nodes = screen.query_one(ActorTreeWidget)._tree_nodes.values()
    return {str(node.data): node.is_expanded for node in nodes if node.data and node.children}


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_screen_shows_the_tree_and_the_channels_at_any_width(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker:
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=size) as pilot:
            await until(pilot, lambda: screen.polls > 1)
            assert "healthy" in first_line(screen)
            assert "2/2 channels" in first_line(screen)
            assert "oracle" in shown(screen)[ORACLE]
            assert all(len(label) <= size[0] for label in shown(screen).values())
            await pilot.press("2")
            assert screen.query_one(TabbedContent).active == "channels-tab"
            table = screen.query_one("#channels", DataTable)
            assert [str(table.get_cell_at((row, 0)))[-2:] for row in range(2)] == ["_0", "_1"]  # type: ignore[arg-type]
            assert screen.screen.max_scroll_y == 0
            assert "channels" in screen.export_screenshot()


async def test_a_killed_actor_shows_its_new_term_and_folds_stay_as_they_were(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test() as pilot:
            await until(pilot, lambda: ORACLE in shown(screen))
            await pilot.press("c")
            before = folds(screen)
            broker.system.kill(ORACLE)
            await until(pilot, lambda: shown(screen)[ORACLE].split()[1] == "2")
            assert folds(screen) == before
            await pilot.press("e")
            assert all(folds(screen).values())


async def test_consumers_come_and_go_in_the_tree(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test() as pilot:
            reader = log.read(NewVChannel("by-dev-rootcoord-dml_0_1v0"))
            await reader.open()
            await until(pilot, lambda: any("scanner-" in path for path in shown(screen)))
            await reader.close()
            await until(pilot, lambda: not any("scanner-" in path for path in shown(screen)))


async def test_keys_change_the_pace_and_hold_the_picture(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        screen = TopScreen(broker.address, 1.0)
        async with screen.run_test() as pilot:
            await until(pilot, lambda: screen.polls > 0)
            await pilot.press("plus", "plus")
            assert screen.every_s == 0.25
            await pilot.press("minus")
            assert screen.every_s == 0.5
            await pilot.press("p")
            assert "paused" in first_line(screen)
            polls = screen.polls
            await pilot.press("p")
            await until(pilot, lambda: screen.polls > polls)
            await pilot.press("q")
        assert screen.return_code == 0


async def test_a_broker_that_goes_away_is_said_so_and_found_again(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    screen = TopScreen(listen, EVERY_S)
    async with screen.run_test() as pilot:
        await until(pilot, lambda: f"{listen} does not answer" in first_line(screen))
        with BrokerProcess(tmp_path, listen, pchannels="1") as broker:
            await until(pilot, lambda: "healthy" in first_line(screen))
            broker.kill()
        await until(pilot, lambda: f"{listen} does not answer" in first_line(screen))
        assert ORACLE in shown(screen)  # what was seen last is still there
        with BrokerProcess(tmp_path, listen, pchannels="1"):
            await until(pilot, lambda: "healthy" in first_line(screen))
