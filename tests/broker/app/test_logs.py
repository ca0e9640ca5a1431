"""Lines of the log: who wrote them, for people and for machines, and which are not written."""

import io
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from actors import Actor, ChildSpec, Envelope, Request, SupervisorSpec, System
from broker.app.logs import configure_logs
from broker.edge.rpc.proxies import Proxy

Configure = Callable[..., io.StringIO]


@pytest.fixture
def configured() -> Iterator[Configure]:
    """Configures the log as a broker does, into a text; everything is as before afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configured = structlog.get_config()
    named: list[logging.Logger] = []

    def configure(levels: str = "info", form: str = "json", node: int | None = None) -> io.StringIO:
        named.extend(logging.getLogger(it.partition("=")[0]) for it in levels.split(",")[1:])
        written = io.StringIO()
        configure_logs(levels, form, written, node=node)
        return written

    yield configure
    root.handlers[:], root.level = before
    for logger in named:
        logger.setLevel(logging.NOTSET)
    structlog.configure(**configured)


@dataclass(frozen=True, slots=True)
class Say(Request[None]):
    """Answered when it is said."""

    what: str


class Speaker(Actor[Say]):
    """Says what it is told, through both kinds of logger."""

    async def receive(self, batch: Sequence[Envelope[Say]]) -> None:
        for envelope in batch:
            structlog.get_logger("broker.node").info("heard", what=envelope.message.what)
            logging.getLogger("broker.node").warning("heard %s", envelope.message.what)
            envelope.reply(None)


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


async def test_lines_of_a_killed_actor_carry_its_path_and_its_new_term(
    configured: Configure,
) -> None:
    written = configured()
    async with System(SupervisorSpec("root", children=(ChildSpec("speaker", Speaker),))) as system:
        speaker = Proxy(lambda: system.find("/root/speaker"))
        await speaker.ask(Say("before"))
        system.kill("/root/speaker")
        await speaker.ask(Say("after"))
    assert [(it["path"], it["term"], it["event"]) for it in said(written)] == [
        ("/root/speaker", 1, "heard"),
        ("/root/speaker", 1, "heard before"),
        ("/root/speaker", 2, "heard"),
        ("/root/speaker", 2, "heard after"),
    ]
    assert [it["path"] for it in lines(written) if "restarts in" in it["event"]] == ["/root"]


def said(written: io.StringIO) -> list[dict[str, Any]]:
    return [it for it in lines(written) if it["event"].startswith("heard")]


def test_json_is_one_object_a_line_even_for_a_traceback(configured: Configure) -> None:
    written = configured()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("broker.edge").exception("call failed")
    (line,) = lines(written)
    assert (line["event"], line["level"], line["logger"]) == ("call failed", "error", "broker.edge")
    assert "ValueError: two\nlines" in line["exception"]
    assert "path" not in line
    assert line["timestamp"].endswith("Z")


def test_people_get_plain_lines_where_there_is_no_terminal(configured: Configure) -> None:
    written = configured("info", "console")
    structlog.get_logger("tidemark").warning("no such setting", name="X")
    logging.getLogger("broker.node").info("an old hand")
    first, second = written.getvalue().splitlines()
    assert "no such setting" in first
    assert "name=X" in first
    assert "an old hand" in second
    assert "\x1b" not in first + second


def test_each_logger_may_have_a_level_of_its_own(configured: Configure) -> None:
    written = configured("warning,broker.node=debug,actors=error")
    logging.getLogger("broker.node").debug("1")
    structlog.get_logger("broker.node.deep").debug("2")
    logging.getLogger("actors").warning("not this")
    structlog.get_logger("broker.edge").info("nor this")
    logging.getLogger("broker.edge").warning("3")
    assert [it["event"] for it in lines(written)] == ["1", "2", "3"]


@pytest.mark.parametrize("levels", ["debug", "warning,aiosqlite=debug"])
def test_what_a_library_carries_is_logged_at_no_level(configured: Configure, levels: str) -> None:
    written = configured(levels)
    logging.getLogger("aiosqlite").debug("SELECT 'secret'")
    logging.getLogger("aiosqlite").warning("it says so")
    assert [it["event"] for it in lines(written)] == ["it says so"]


def test_a_noisy_library_is_quiet_again_when_it_is_not_named_any_more(
    configured: Configure,
) -> None:
    configured("info,asyncio=debug")
    written = configured("info")
    logging.getLogger("asyncio").info("noise")
    assert lines(written) == []


@pytest.mark.parametrize(("level", "count"), [("info", 1), ("warning", 0)])
def test_a_call_that_came_too_late_is_one_line_for_who_wants_to_know(
    configured: Configure, level: str, count: int
) -> None:
    written = configured(level)
    try:
        raise TimeoutError("Deadline exceeded")
    except TimeoutError:
        logging.getLogger("grpclib.server").exception("Timeout occurred")
    assert [it["event"] for it in lines(written)] == [
        "a call was cancelled because its deadline passed"
    ] * count
    logging.getLogger("grpclib.server").error("Application error")
    assert lines(written)[-1]["event"] == "Application error"


def test_lines_of_a_node_process_name_the_node(configured: Configure) -> None:
    written = configured(node=2)
    logging.getLogger("actors").warning("heard")
    structlog.get_logger("broker.node").warning("heard", node=7)
    assert [it["node"] for it in lines(written)] == [2, 7]
