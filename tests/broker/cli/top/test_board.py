"""The live screen over a real broker: what it shows, its keys, and a broker that comes and goes."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from broker.cli.top.board import Board
from broker.cli.top.forest import Forest
from broker.client import connect
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

DEADLINE_S = 60.0
EVERY_S = 0.1
ORACLE = "/root/coordinator/oracle"


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not true():
            await pilot.pause(0.02)


def first_line(board: Board) -> str:
    return str(board.query_one("#summary", Static).content)


def shown(board: Board) -> dict[str, str]:
    forest = board.query_one(Forest)
    return {str(node.data): str(node.label) for node in forest.root.tree._tree_nodes.values()}


def folds(board: Board) -> dict[str, bool]:
    nodes = board.query_one(Forest)._tree_nodes.values()
    return {str(node.data): node.is_expanded for node in nodes if node.data and node.children}


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_screen_shows_the_tree_and_the_channels_at_any_width(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker:
        board = Board(broker.address, EVERY_S)
        async with board.run_test(size=size) as pilot:
            await until(pilot, lambda: board.looks > 1)
            assert "healthy" in first_line(board)
            assert "2/2 channels" in first_line(board)
            assert "oracle" in shown(board)[ORACLE]
            assert all(len(label) <= size[0] for label in shown(board).values())
            await pilot.press("2")
            assert board.query_one(TabbedContent).active == "channels-tab"
            table = board.query_one("#channels", DataTable)
            assert [str(table.get_cell_at((row, 0)))[-2:] for row in range(2)] == ["_0", "_1"]  # type: ignore[arg-type]
            assert board.screen.max_scroll_y == 0
            assert "channels" in board.export_screenshot()


async def test_a_killed_actor_shows_its_new_term_and_folds_stay_as_they_were(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        board = Board(broker.address, EVERY_S)
        async with board.run_test() as pilot:
            await until(pilot, lambda: ORACLE in shown(board))
            await pilot.press("c")
            before = folds(board)
            broker.system.kill(ORACLE)
            await until(pilot, lambda: shown(board)[ORACLE].split()[1] == "2")
            assert folds(board) == before
            await pilot.press("e")
            assert all(folds(board).values())


async def test_consumers_come_and_go_in_the_tree(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        board = Board(broker.address, EVERY_S)
        async with board.run_test() as pilot:
            reader = log.read("by-dev-rootcoord-dml_0_1v0")
            await reader.open()
            await until(pilot, lambda: any("scanner-" in path for path in shown(board)))
            await reader.close()
            await until(pilot, lambda: not any("scanner-" in path for path in shown(board)))


async def test_keys_change_the_pace_and_hold_the_picture(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        board = Board(broker.address, 1.0)
        async with board.run_test() as pilot:
            await until(pilot, lambda: board.looks > 0)
            await pilot.press("plus", "plus")
            assert board.every_s == 0.25
            await pilot.press("minus")
            assert board.every_s == 0.5
            await pilot.press("p")
            assert "paused" in first_line(board)
            looks = board.looks
            await pilot.press("p")
            await until(pilot, lambda: board.looks > looks)
            await pilot.press("q")
        assert board.return_code == 0


async def test_a_broker_that_goes_away_is_said_so_and_found_again(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    board = Board(listen, EVERY_S)
    async with board.run_test() as pilot:
        await until(pilot, lambda: f"{listen} is gone" in first_line(board))
        with BrokerProcess(tmp_path, listen, pchannels="1") as broker:
            await until(pilot, lambda: "healthy" in first_line(board))
            broker.kill()
        await until(pilot, lambda: f"{listen} is gone" in first_line(board))
        assert ORACLE in shown(board)  # what was seen last is still there
        with BrokerProcess(tmp_path, listen, pchannels="1"):
            await until(pilot, lambda: "healthy" in first_line(board))
