"""The command line against a real broker: what it prints, and the codes it ends with."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, free_port
from tests.forked_process import COMMAND, ForkedProcess, run_forked

PCHANNEL = "by-dev-rootcoord-dml_1"
VCHANNEL = f"{PCHANNEL}_9v0"


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


def started(*arguments: str, server: str) -> "subprocess.Popen[str]":
    return ForkedProcess(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def test_collections_are_created_listed_and_dropped(server: str) -> None:
    created = tidemark("collection", "create", "cities", "--shards", "2", "--json", server=server)
    assert created.returncode == 0, created.stderr
    cities = json.loads(created.stdout)
    assert (cities["name"], len(cities["vchannels"])) == ("cities", 2)
    assert "cities" in tidemark("collection", "list", server=server).stdout
    listed = json.loads(tidemark("collection", "list", "--json", server=server).stdout)
    assert cities in listed
    assert tidemark("collection", "drop", "cities", server=server).returncode == 0
    again = tidemark("collection", "drop", "cities", server=server)
    assert again.returncode == 1
    assert again.stderr.count("\n") == 1
    # The words first, then the code that a search engine or a colleague knows.
    assert again.stderr.startswith("tidemark: ")
    assert "cities" in again.stderr.partition("(")[0]
    assert again.stderr.endswith("(CHANNEL_NOT_EXIST)\n")


def test_lines_that_are_produced_are_consumed(server: str, tmp_path: Path) -> None:
    tidemark("collection", "create", "flights", "--shards", "3", server=server)
    lines = [json.dumps({"carrier": f"C{it % 5}", "number": it}) for it in range(2500)]
    file = tmp_path / "flights.jsonl"
    file.write_text("\n".join(lines) + "\n\n")
    produced = tidemark("produce", "flights", str(file), "--key", "carrier", server=server)
    assert produced.returncode == 0, produced.stderr
    assert produced.stdout.startswith("2,500 messages, ")
    raw = tidemark("consume", "flights", "--until-now", "--format", "raw", server=server)
    assert sorted(raw.stdout.splitlines()) == sorted(lines)
    parsed = tidemark("consume", "flights", "--until-now", server=server)
    shards: dict[str, set[str]] = {}
    for line in map(json.loads, parsed.stdout.splitlines()):
        assert json.loads(line["payload"])["carrier"] == line["key"]
        shards.setdefault(line["key"], set()).add(line["vchannel"])
    assert len(shards) == 5
    assert all(len(vchannels) == 1 for vchannels in shards.values())


def test_stdin_is_produced_in_order_and_limits_and_starts_hold(server: str) -> None:
    given = "".join(f"line {it}\r\n" for it in range(10))
    produced = tidemark(
        "produce", VCHANNEL, "--new", "--batch", "3", "--json", server=server, given=given
    )
    assert json.loads(produced.stdout)["messages"] == 10
    assert len(produced.stdout.partition('"seconds": ')[2].partition(".")[2]) <= len("123}\n")
    first = tidemark("consume", VCHANNEL, "--limit", "4", server=server)
    messages = [json.loads(line) for line in first.stdout.splitlines()]
    assert [it["payload"] for it in messages] == [f"line {it}" for it in range(4)]
    for start in (str(messages[2]["id"]), f"tick:{messages[2]['tick']}"):
        rest = tidemark(
            *("consume", VCHANNEL, "--from", start, "--until-now", "--format", "raw"),
            server=server,
        )
        assert rest.stdout.splitlines() == [f"line {it}" for it in range(2, 10)]


def test_bytes_that_are_no_text_are_written_as_base64(server: str, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\n")
    target = f"{PCHANNEL}_10v0"
    tidemark("produce", target, "--new", str(file), server=server)
    consumed = tidemark("consume", target, "--until-now", server=server)
    assert json.loads(consumed.stdout)["payload_base64"] == "//4="


def test_a_line_that_is_not_json_stops_with_what_was_appended(server: str) -> None:
    produced = tidemark(
        *("produce", f"{PCHANNEL}_11v0", "--new", "--key", "a", "--batch", "1"),
        server=server,
        given='{"a": 1}\nnonsense\n',
    )
    assert produced.returncode == 1
    assert "nonsense" in produced.stderr
    assert "1 message is stored, up to line 1 of stdin" in produced.stderr


def test_a_line_that_nests_without_end_is_told_as_one_that_is_not_json(server: str) -> None:
    deep = "[" * 100_000
    produced = tidemark("produce", VCHANNEL, "--new", "--key", "a", server=server, given=deep)
    assert produced.returncode == 1
    assert "must be a JSON object" in produced.stderr
    assert "Traceback" not in produced.stderr


def test_consume_ends_well_on_ctrl_c(server: str) -> None:
    tidemark("produce", f"{PCHANNEL}_12v0", "--new", server=server, given="one\n")
    with started("consume", f"{PCHANNEL}_12v0", server=server) as consumer:
        assert consumer.stdout is not None
        assert json.loads(consumer.stdout.readline())["payload"] == "one"
        consumer.send_signal(signal.SIGINT)
        _, complaint = consumer.communicate(timeout=60)
    assert (consumer.returncode, complaint) == (0, "")


def test_produce_ends_on_ctrl_c_while_its_input_is_silent(server: str) -> None:
    target = f"{PCHANNEL}_14v0"
    # Before the producer starts: a vchannel that is not there yet is refused, not waited for.
    tidemark("produce", target, "--new", server=server, given="zero\n")
    with started("produce", target, server=server) as producer:
        assert producer.stdin is not None
        producer.stdin.write("one\n")
        producer.stdin.flush()
        seen = tidemark("consume", target, "--limit", "2", "--format", "raw", server=server)
        assert seen.stdout == "zero\none\n", seen.stderr
        producer.send_signal(signal.SIGINT)
        assert producer.wait(timeout=60) == 130
        assert producer.stderr is not None
        assert "Traceback" not in producer.stderr.read()


def test_consume_ends_well_when_nobody_reads_its_output(server: str) -> None:
    tidemark("produce", f"{PCHANNEL}_13v0", "--new", server=server, given="one\n")
    with started("consume", f"{PCHANNEL}_13v0", server=server) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.wait(timeout=60) == 0
        assert consumer.stderr.read() == ""


def test_channels_health_and_actors_are_shown_as_tables_and_as_json(server: str) -> None:
    assert PCHANNEL in tidemark("channels", server=server).stdout
    channels = json.loads(tidemark("channels", "--json", server=server).stdout)
    assert [it["name"] for it in channels][1] == PCHANNEL
    assert channels[1]["open_txns"] == channels[1]["open_txn_bytes"] == 0
    assert channels[1]["growing_segments"] == channels[1]["sealed_segments"] == 0
    assert channels[1]["first_id"] <= channels[1]["last_confirmed_id"] < channels[1]["next_id"]
    assert channels[1]["closed_tick"] > 0
    assert "healthy" in tidemark("health", server=server).stdout
    assert json.loads(tidemark("health", "--json", server=server).stdout)["state"] == "healthy"
    shown = tidemark("actors", server=server).stdout
    assert "appender" in shown
    assert "mailbox" in shown
    paths = [it["path"] for it in json.loads(tidemark("actors", "--json", server=server).stdout)]
    assert paths == sorted(paths)


def test_actors_are_one_line_a_kind_unless_all_are_wanted_or_some(server: str) -> None:
    few = tidemark("actors", server=server).stdout
    assert "appender x" in few
    assert PCHANNEL not in few
    every = tidemark("actors", "--all", server=server).stdout
    assert (
        every.count("appender")
        == json.loads(tidemark("health", "--json", server=server).stdout)["channels_total"]
    )
    some = tidemark("actors", "/root/coordinator", "--json", server=server).stdout
    assert {it["path"].split("/")[2] for it in json.loads(some)} == {"coordinator"}
    nobody = tidemark("actors", "/root/coord", server=server)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "there is no actor at /root/coord" in nobody.stderr


def test_an_actor_is_killed_only_where_that_is_allowed(server: str, tmp_path: Path) -> None:
    path = "/root/coordinator/oracle"
    refused = tidemark("actors", "kill", path, server=server)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--allow-chaos" in refused.stderr
    with BrokerProcess(tmp_path, pchannels="1", allow_chaos="true") as broker:
        killed = tidemark("actors", "kill", path, "--term", "1", server=broker.address)
        assert killed.stdout == f"killed {path} of term 1\n"
        late = tidemark("actors", "kill", path, "--term", "1", server=broker.address)
        assert (late.returncode, late.stdout) == (1, "")
        assert "at term 2, not 1" in late.stderr or "waiting" in late.stderr


def test_each_batch_is_a_transaction_when_asked_for(server: str) -> None:
    vchannel = f"{PCHANNEL}_21v0"
    given = "".join(f"line {it}\n" for it in range(10))
    arguments = ("produce", vchannel, "--new", "--txn", "--batch", "4")
    produced = tidemark(*arguments, "--json", server=server, given=given)
    assert json.loads(produced.stdout)["transactions"] == 3, produced.stderr
    assert "3 transactions" in tidemark(*arguments, server=server, given=given).stdout
    shown = tidemark("consume", vchannel, "--until-now", server=server).stdout.splitlines()
    messages = [json.loads(line) for line in shown]
    assert [it["payload"] for it in messages] == [f"line {it}" for it in range(10)] * 2
    assert len({it["tick"] for it in messages}) == 6


def test_consumption_is_paused_and_resumed(server: str) -> None:
    vchannel = f"{PCHANNEL}_22v0"
    tidemark("produce", vchannel, "--new", server=server, given="a\n")
    assert tidemark("consumption", "pause", server=server).returncode == 0
    try:
        assert json.loads(tidemark("health", "--json", server=server).stdout)["consumption_paused"]
        arguments = ("consume", vchannel, "--limit", "1", "--format", "raw")
        assert tidemark(*arguments, "--ignore-pause", server=server).stdout == "a\n"
        waiting = started(*arguments, server=server)
        assert waiting.stderr is not None
        assert "consumption is paused" in waiting.stderr.readline()
    finally:
        assert tidemark("consumption", "resume", server=server).returncode == 0
    assert waiting.communicate(timeout=60)[0] == "a\n"
    assert tidemark(*arguments, server=server).stdout == "a\n"


def test_top_prints_one_page_as_text_and_needs_a_terminal_for_more(server: str) -> None:
    once = tidemark("top", "--once", "--every", "0.2", server=server)
    assert once.returncode == 0
    assert once.stdout.startswith(f"tidemark {server}  healthy ")
    assert "[1 collections]" in once.stdout
    assert "\x1b" not in once.stdout
    pages = (
        *(("channels", PCHANNEL), ("4", "cluster"), ("actors", "appender"), ("7", "no segment")),
        ("groups", "no consumer group"),
    )
    for page, word in pages:
        wanted = ("--page", page, "--width", "80", "--height", "100", "--every", "0.2")
        found = tidemark("top", "--once", *wanted, server=server)
        assert word in found.stdout
        assert all(len(line) <= 80 for line in found.stdout.splitlines())
    nowhere = tidemark("top", server=server)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "--once" in nowhere.stderr
    wrong = tidemark("top", "--once", "--page", "9", server=server)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no page '9'; use one of collections, lag" in wrong.stderr


def test_barriers_are_shown_as_a_table_and_as_json(server: str) -> None:
    assert "cluster" in tidemark("barriers", server=server).stdout
    (cluster,) = json.loads(tidemark("barriers", "--json", server=server).stdout)
    assert (cluster["name"], cluster["kind"], cluster["removed"]) == ("cluster", "soft", [])
    assert [it["name"] for it in cluster["peers"]][1] == PCHANNEL


def test_names_are_shown_as_they_are_and_not_as_markup(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "[bold]:cat:", pchannels="1") as broker:
        for arguments in (("health",), ("health", "--json")):
            assert "[bold]:cat:" in tidemark(*arguments, server=broker.address).stdout


@pytest.mark.parametrize("arguments", [("channels",), ("actors", "--json")])
def test_a_table_that_nobody_reads_is_no_error(server: str, arguments: tuple[str, ...]) -> None:
    with started(*arguments, server=server) as showing:
        assert showing.stdout is not None
        assert showing.stderr is not None
        showing.stdout.close()
        assert showing.wait(timeout=60) == 0
        assert showing.stderr.read() == ""


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("channels", ">&-"),
        (f"consume {VCHANNEL} --until-now", ">&-"),
        (f"produce --new {VCHANNEL}", "<&-"),
        ("health", "2>&-"),
    ],
)
def test_standard_streams_that_were_closed_before_the_start_are_taken_for_empty(
    server: str, command: str, closed: str
) -> None:
    shell = f"exec {sys.executable} -m broker {command} --server {server} {closed}"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("consume", "nowhere"), 1, "there is no collection 'nowhere'"),
        (("consume", "x", "--from", "yesterday"), 2, "--from 'yesterday' is no place in the log"),
        (("consume", "x", "--from", "\N{SUPERSCRIPT TWO}"), 2, "is no place in the log"),
        (("consume", "x", "--from", f"tick:{1 << 64}"), 2, "is no place in the log"),
        (("health", "--server", "host:\N{SUPERSCRIPT TWO}"), 2, "is not a server address"),
        (("produce", "x", "/no/such/file"), 2, "cannot read /no/such/file"),
        (("health", "--server", "nonsense"), 2, "'nonsense' is not a server address"),
        (("health", "--server", "127.0.0.1:1"), 1, "cannot reach 127.0.0.1:1"),
        (("frobnicate",), 2, "No such command"),
        (("serve", "--listen", "nonsense"), 2, "setting listen: 'nonsense' is not HOST:PORT"),
        (("consume", "many", "--from", "5"), 1, "a message ID belongs to one vchannel; name one"),
    ],
)
def test_errors_are_one_sentence_and_a_code(
    server: str, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    tidemark("collection", "create", "many", "--shards", "2", server=server)
    ended = tidemark(*arguments, server=server)
    assert ended.returncode == code
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_port_or_a_folder_that_is_taken_is_told_in_one_sentence(
    server: str, tmp_path: Path
) -> None:
    taken = tidemark("serve", "--listen", server, "--data-dir", str(tmp_path / "a"), server=server)
    assert (taken.returncode, taken.stderr.count("\n")) == (1, 1)
    assert server in taken.stderr
    with BrokerProcess(tmp_path / "b", pchannels="1") as first:
        second = tidemark(
            *("serve", "--listen", f"127.0.0.1:{free_port()}", "--data-dir", str(tmp_path / "b")),
            server=server,
        )
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert str(first.pid) in second.stderr


def test_a_log_is_dumped_and_verified_without_a_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, pchannels="2") as broker:
        tidemark("produce", VCHANNEL, "--new", server=broker.address, given="one\ntwo\n")
        broker.terminate()
    dumped = tidemark("wal", "dump", str(data), "--json", server="")
    rows = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert [it["messages"] for it in rows if it["vchannel"] == VCHANNEL] == [2]
    assert f"INSERT  {VCHANNEL}" in tidemark("wal", "dump", str(data), server="").stdout
    verified = tidemark("wal", "verify", str(data / "wal"), server="")
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "healthy")
    damage_in_the_middle(next((data / "wal").glob(f"*{PCHANNEL}*/*.log")))
    damaged = tidemark("wal", "verify", str(data), server="")
    assert (damaged.returncode, damaged.stdout.splitlines()[-1]) == (1, "1 damaged place")
    nothing = tidemark("wal", "dump", str(tmp_path / "nothing"), server="")
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)


def damage_in_the_middle(file: Path) -> None:
    content = bytearray(file.read_bytes())
    at = content.index(b"one")
    content[at] ^= 1
    file.write_bytes(content)


def test_cursors_are_moved_shown_and_dropped(server: str) -> None:
    tidemark("produce", VCHANNEL, "--new", server=server, given="one\n")
    tick = json.loads(tidemark("barriers", "--json", server=server).stdout)[0]["tick"]
    made = tidemark("cursors", "move", "copied", str(tick), VCHANNEL, server=server)
    assert made.returncode == 0, made.stderr
    (cursor,) = json.loads(tidemark("cursors", "--json", server=server).stdout)
    assert (cursor["name"], cursor["tick"], cursor["channels"]) == ("copied", tick, [VCHANNEL])
    assert cursor["closed_tick"] >= tick
    listed = tidemark("cursors", server=server).stdout
    assert "copied" in listed
    assert "holds back" in listed
    back = tidemark("cursors", "move", "copied", "1", server=server)
    assert back.returncode == 1
    assert "cannot move back to 1" in back.stderr
    assert tidemark("cursors", "drop", "copied", server=server).returncode == 0
    assert tidemark("cursors", "drop", "copied", server=server).returncode == 1
    assert json.loads(tidemark("cursors", "--json", server=server).stdout) == []
