"""Cursors and times from a terminal: consume continues where a cursor is."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, run_forked


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "data", pchannels="3") as broker:
        yield broker.address


def tidemark(*arguments: str, server: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return run_forked(
        [*COMMAND, *arguments],
        given=given,
        text=True,
        timeout=60,
        env=os.environ | {"TIDEMARK_SERVER": server, "COLUMNS": "200"},
    )


def test_a_consumer_continues_where_its_cursor_is(server: str) -> None:
    assert (
        tidemark("collection", "create", "cursed", "--shards", "2", server=server).returncode == 0
    )
    lines = [f"line {it}" for it in range(40)]
    tidemark("produce", "cursed", server=server, given="".join(f"{it}\n" for it in lines))
    consume = ("consume", "cursed", "--cursor", "bills", "-f", "raw")
    seen: list[str] = []
    for limit in ("3", "1", "7"):
        part = tidemark(*consume, "--limit", limit, server=server)
        assert len(part.stdout.splitlines()) == int(limit), part.stderr
        seen += part.stdout.splitlines()
        left = json.loads(tidemark("cursors", "get", "bills", "--json", server=server).stdout)
        assert (left["rows_behind"], left["exact"]) == (40 - len(seen), True)
        assert left["bytes_behind"] > 0
    seen += tidemark(*consume, "-e", server=server).stdout.splitlines()
    assert sorted(seen) == sorted(lines), "each once, whatever the limits"
    assert tidemark(*consume, "-e", server=server).stdout == ""
    assert "bills" in tidemark("cursor", "list", server=server).stdout
    for to, count in (("all", 40), ("latest", 0), ("10m", 40), ("2020-01-02T03:04", 40)):
        reset = tidemark("cursors", "reset", "bills", to, server=server)
        assert reset.returncode == 0, reset.stderr
        again = tidemark(*consume, "-e", server=server).stdout
        assert len(again.splitlines()) == count, to
    assert tidemark("cursors", "drop", "bills", server=server).returncode == 0


def test_what_a_cursor_cannot_be_told_is_one_line(server: str) -> None:
    tidemark("collection", "create", "stops", server=server)
    for arguments, code, told in [
        (("cursors", "reset", "bills", "7"), 2, "'7' is no place in the log"),
        (("cursors", "reset", "bills", "20200102"), 2, "tick:N, a time such as"),
        (("cursors", "reset", "bills", "all"), 1, "no cursor 'bills'"),
        (("cursors", "get", "bills"), 1, "no cursor 'bills'"),
        (("consume", "x", "--cursor", "bills", "--from", "latest"), 2, "leave out --from"),
        (("consume", "x", "--cursor", "bills", "--count"), 2, "leave out --from"),
        (("consume", "x", "--from", "999999999d"), 2, "before every calendar"),
        (("consume", "x", "--from", "yesterday"), 2, "10m for ten minutes ago"),
        (("consume", "stops", "--cursor", "Latest", "-e"), 1, "cannot name a cursor"),
    ]:
        refused = tidemark(*arguments, server=server)
        assert (refused.returncode, refused.stdout) == (code, ""), refused.stderr
        assert told in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_consume_starts_at_a_time(server: str) -> None:
    tidemark("collection", "create", "times", server=server)
    tidemark("produce", "times", server=server, given="before\n")
    consume = ("consume", "times", "-e", "-f", "raw", "--from")
    first = json.loads(tidemark("consume", "times", "-n", "1", server=server).stdout)
    at = datetime.fromtimestamp((first["tick"] >> 18) / 1000, UTC)
    for start, count in [
        (at.isoformat(), 1),
        ((at + timedelta(milliseconds=1)).isoformat(), 0),
        ((at - timedelta(days=1)).isoformat(), 1),
        ("1h", 1),
    ]:
        found = tidemark(*consume, start, server=server)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.count("before") == count, start
