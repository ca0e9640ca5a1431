"""The live screen over a real broker: what it shows, its keys, and a broker that comes and goes."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from rich.cells import cell_len
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input, Static

from broker.cli.top.chrome import PAGES, joined
from broker.cli.top.screen import TopScreen
from broker.client import Client, Deadlines, Message, connect
from schemas.generated.milvus.proto import schema as milvus
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

DEADLINE_S = 60.0
EVERY_S = 0.1
ORACLE = "/root/coordinator/oracle"


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not true():
            await pilot.pause(0.02)


def text(screen: TopScreen) -> str:
    return joined(screen.picture.lines)


def line_of(screen: TopScreen, word: str) -> list[str]:
    """The cells of the row that begins with a word."""
    for line in text(screen).splitlines():
        cells = re.split(r"  +", line.lstrip("!> "))
        if cells[0] == word:
            return cells
    return []


@asynccontextmanager
async def under_load(log: Client) -> AsyncIterator[None]:
    """Two collections written at different rates, a reader, a cursor, an open transaction."""
    await log.collections.create("busy", shards=2)
    await log.collections.create("quiet")
    vchannel = (await log.collections.get("quiet")).vchannels[0]
    landed = await log.append(vchannel, b"first")
    await log.cursor("report").move(landed.tick, "quiet")

    async def write(name: str, count: int) -> None:
        while True:
            await log.append_messages(name, [Message(b"x" * 100)] * count)
            await anyio.sleep(0.02)

    async def read() -> None:
        async for _ in log.read("busy", start="all"):
            pass

    # It is open until the test has seen all it waits for.
    async with log.txn(vchannel, keepalive_s=600) as txn, anyio.create_task_group() as tasks:
        await txn.append(b"open")
        tasks.start_soon(write, "busy", 50)
        tasks.start_soon(write, "quiet", 1)
        tasks.start_soon(read)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_under_load_every_page_shows_what_happens_and_cuts_no_number(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        screen = TopScreen(broker.address, EVERY_S)
        async with under_load(log), screen.run_test(size=size) as pilot:
            await until(pilot, lambda: "msg/s" in text(screen) and len(line_of(screen, "busy")) > 3)
            assert "healthy" in text(screen)

            def flows() -> bool:
                rates = {it: line_of(screen, it)[1] for it in ("busy", "quiet")}
                return all(rate not in ("0", "-") for rate in rates.values())

            await until(pilot, flows)
            for number, word in enumerate(
                ("report", "busy", "node 1", "cluster", "oracle", "data folder", "quiet")
            ):
                await pilot.press(str(number + 1))
                await until(pilot, lambda word=word: bool(line_of(screen, word)))  # type: ignore[misc]
                lines = screen.picture.lines
                assert len(lines) == size[1]
                assert all(cell_len(line.plain) <= size[0] for line in lines)
                assert f"[{number + 1} {PAGES[number]}]" in text(screen)
            await pilot.press("4")
            open_one = re.compile(r"by-dev-rootcoord-dml_\d +[1-9]\d* +[\d.]+ (B|KiB) ")
            await until(pilot, lambda: open_one.search(text(screen)) is not None)


async def test_many_collections_and_very_long_names_fit(tmp_path: Path) -> None:
    patient = Deadlines(call_s=60)  # for one of fifty calls at once
    async with (
        local_broker(tmp_path, pchannels=2) as broker,
        connect(broker.address, deadlines=patient) as log,
    ):
        name = "n" * 120 + "_{}"
        for start in range(0, 200, 50):
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 50):
                    tasks.start_soon(log.collections.create, name.format(number))
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "of 200" in text(screen))
            assert "…" in text(screen)
            await pilot.press("end")
            await until(pilot, lambda: "-200 of 200" in text(screen))
            await pilot.press("slash", *"_177", "enter")
            await until(pilot, lambda: "rows" not in text(screen) and "_177" in text(screen))


def given_rows() -> bytes:
    key = milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True)
    return bytes(milvus.CollectionSchema(name="rows", fields=[key]))


async def test_segments_of_every_database_show_while_their_page_does(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        await log.master.create_database("sales")
        await log.collections.create("items", database="sales")
        made = await log.master.create_collection("rows", milvus_schema=given_rows())
        await log.master.create_partition("rows", "second")
        await log.append_batch(made.vchannels[0], [b"a", b"b", b"c"])
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=(160, 50)) as pilot:
            await until(pilot, lambda: bool(line_of(screen, "sales/items")))
            look = screen.look()
            assert look is not None
            assert look.broker.segments is None
            await pilot.press("7")
            await until(pilot, lambda: re.search(r" rows +.* growing ", text(screen)) is not None)
            assert line_of(screen, "sales/items")
            rows = line_of(screen, "rows")
            # Shards, rows, partitions, growing segments.
            assert (rows[1], rows[3], rows[5], rows[6]) == ("1", "3", "2", "1")


async def test_keys_choose_pages_order_and_filter(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        for name in ("alpha", "beta"):
            await log.collections.create(name)
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "beta" in text(screen))
            await pilot.press("n", "n")
            assert text(screen).index("beta") < text(screen).index("alpha")
            await pilot.press("r")
            assert text(screen).index("alpha") < text(screen).index("beta")
            await pilot.press("slash", *"q1be")  # letters of the filter are no keys of the screen
            assert screen.query_one(Input).value == "q1be"
            assert "Nothing here contains 'q1be'" in text(screen)
            await pilot.press("escape")
            assert "alpha" in text(screen)
            await pilot.press("question_mark")
            assert "sort by that column" in text(screen)
            for key in ("2", "p", "question_mark", "x"):
                await pilot.press(key)
                assert "sort by that column" not in text(screen)
                await pilot.press("question_mark")
                assert "sort by that column" in text(screen)
            await pilot.press("question_mark")
            assert "[1 collections]" in text(screen)
            await pilot.press("right", "right")
            assert "[3 channels]" in text(screen)
            await pilot.press("left", "left", "left")
            assert "[8 groups]" in text(screen)
            await pilot.press("5", "e")
            assert "appender" in text(screen) or "rows 1-" in text(screen)


async def test_a_click_on_a_heading_sorts_and_one_on_a_tab_opens_its_page(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("alpha")
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "alpha" in text(screen))
            heading = text(screen).splitlines()[3]
            await pilot.click(offset=(heading.index("shards") + 2, 3))
            assert "▼shards" in text(screen)
            await pilot.click(offset=(heading.index("collection"), 3))
            assert "collection▲" in text(screen)
            await pilot.click(offset=(text(screen).splitlines()[2].index("actors"), 2))
            assert "[5 actors]" in text(screen)


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
            assert "PAUSED" in text(screen)
            polls = screen.polls
            await pilot.press("p")
            await until(pilot, lambda: screen.polls > polls)
            await pilot.press("q")
        assert screen.return_code == 0


async def test_a_new_size_is_filled_at_once(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        screen = TopScreen(broker.address, EVERY_S)
        async with screen.run_test(size=(160, 50)) as pilot:
            await until(pilot, lambda: screen.polls > 0)
            for size in ((80, 24), (62, 12), (30, 5), (120, 40)):
                await pilot.resize_terminal(*size)
                await until(pilot, lambda size=size: len(screen.picture.lines) == size[1])  # type: ignore[misc]
                assert all(cell_len(line.plain) <= size[0] for line in screen.picture.lines)
            assert "[1 collections]" in text(screen)


async def test_a_terminal_without_unicode_gets_ascii(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("n" * 100)
        screen = TopScreen(broker.address, EVERY_S, ascii_only=True)
        async with screen.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "nnn" in text(screen))
            shown = screen.query_one("#picture", Static).content
            assert isinstance(shown, Text)
            assert shown.plain.isascii()
            assert "nnn~nnn" in shown.plain


async def test_a_killed_actor_is_shown_with_its_restart_and_the_tree_folds(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker:
        screen = TopScreen(broker.address, EVERY_S, PAGES.index("actors"))
        async with screen.run_test(size=(160, 50)) as pilot:
            await until(pilot, lambda: bool(line_of(screen, "oracle")))
            broker.system.kill(ORACLE)
            await until(pilot, lambda: line_of(screen, "oracle")[2] == "2")
            await until(pilot, lambda: "! " in text(screen))
            assert not line_of(screen, "appender")
            await pilot.press("e")
            assert line_of(screen, "appender")
            await pilot.press("e")
            assert not line_of(screen, "appender")


async def test_after_an_outage_no_rate_spans_it(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    screen = TopScreen(listen, EVERY_S)
    async with screen.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: f"from {listen}; retries" in text(screen))
        assert "Start one with `tidemark serve`" in text(screen)
        with BrokerProcess(tmp_path, listen, pchannels="1") as broker:
            async with connect(listen) as log:
                await log.collections.create("kept")
                await log.append_messages("kept", [Message(b"x")] * 5000)
            await until(pilot, lambda: "healthy" in text(screen) and bool(line_of(screen, "kept")))
            broker.kill()
        await until(pilot, lambda: "! no answer" in text(screen))
        assert line_of(screen, "kept")  # what was seen last is still there, and of when
        assert "figures of" in text(screen)
        with BrokerProcess(tmp_path, listen, pchannels="1"):
            rates: list[str] = []

            def again() -> bool:
                if "healthy" in text(screen):
                    rates.append(line_of(screen, "kept")[1])
                return len(set(rates)) > 1

            await until(pilot, again)
    assert rates[0] == "-"  # not known from one answer
    assert {it for it in rates if it != "-"} == {"0"}
