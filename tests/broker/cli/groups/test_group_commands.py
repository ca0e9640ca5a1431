"""`tidemark group` and `consume --group` against a real broker."""

import json
from collections.abc import Iterator

import pytest

from broker.client.sync import connect
from tests.broker.cli.test_consuming import PATIENCE_S, consumed, refused, started
from tests.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", pchannels="2") as broker:
        yield broker.address


def run(*arguments: str, server: str, code: int = 0) -> str:
    with started("group", *arguments, server=server) as process:
        out, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, complaint
    return (out if code == 0 else complaint).decode()


def filled(server: str, name: str, count: int = 6) -> None:
    with connect(server) as log:
        log.collections.create(name)
        for number in range(count):
            log.append(name, b"m%d" % number)


def test_what_a_member_wrote_is_acknowledged_and_the_next_one_gets_the_rest(server: str) -> None:
    filled(server, "shared")
    first = consumed("shared", "--group", "g", "-n", "4", "-f", "raw", server=server)
    assert first.split() == [b"m0", b"m1", b"m2", b"m3"]
    (lag,) = json.loads(run("lag", "shared", "g", "--json", server=server))
    assert lag["messages"] == 2
    rest = consumed("shared", "--group", "g", "-n", "2", "-f", "raw", server=server)
    assert rest.split() == [b"m4", b"m5"]
    assert "all" in run("lag", "shared", "g", server=server)
    (shown,) = json.loads(run("list", "shared", "--json", server=server))
    assert (shown["group"], shown["acked"]) == ("g", [])


def test_a_group_is_created_shown_sought_and_dropped(server: str) -> None:
    filled(server, "kept")
    assert "1 vchannel" in run("create", "kept", "g", "--lease", "5", server=server)
    assert "exists already" in run("create", "kept", "g", server=server, code=1)
    run("create", "kept", "g", "--if-not-exists", server=server)
    run("create", "kept", "late", "--from", "latest", server=server)
    listed = run("list", "kept", server=server)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["g", "late"]
    shown = run("describe", "kept", "g", server=server)
    assert "the beginning" in shown
    assert "no members" in shown
    (before,) = json.loads(run("describe", "kept", "late", "--json", server=server))
    assert before["floor"] > 0
    assert "the beginning" in run("seek", "kept", "late", "all", server=server)
    run("drop", "kept", "late", server=server)
    assert "no group 'late'" in run("seek", "kept", "late", "all", server=server, code=1)
    assert "there is no group" in run("describe", "kept", "late", server=server, code=1)


def test_a_member_that_works_is_shown_with_its_state(server: str) -> None:
    filled(server, "watched")
    with connect(server) as log, log.group("g").join("watched", member="ann") as member:
        batch = next(member)
        assert len(batch) == len(batch.messages) == 6
        shown = run("describe", "watched", "g", server=server)
        assert "ann" in shown
        assert "waiting for messages" in shown
        batch.ack()
    assert consumed("watched", "--from", "all", "-e", "-c", server=server) == b"6\n"


def test_an_ordered_group_shows_its_mode_and_who_owns_what(server: str) -> None:
    filled(server, "steps")
    run("create", "steps", "o", "--mode", "ordered", "--by", "key", server=server)
    assert "cannot be changed" in run(
        "create", "steps", "o", "--mode", "ordered", "--if-not-exists", server=server, code=1
    )
    assert "no mode of a group" in run("create", "steps", "p", "--by", "key", server=server, code=1)
    with connect(server) as log, log.group("o").join("steps", member="ann"):
        shown = run("describe", "steps", "o", server=server)
        assert "group o is ordered by key" in shown
        assert "256 of 256 key slots" in shown
        assert "ordered by key" in run("list", "steps", server=server)
        (view,) = json.loads(run("list", "steps", "--json", server=server))
        assert (view["mode"], view["members"][0]["owns"]) == ("key", 256)
    run("create", "steps", "v", "--mode", "ordered", server=server)
    with connect(server) as log, log.group("v").join("steps", member="ann"):
        shown = run("describe", "steps", "v", server=server)
        assert "ordered by vchannel" in shown
        assert "the vchannel" in shown
    written = consumed("steps", "--group", "o", "-n", "6", "-f", "raw", server=server)
    assert written.split() == [b"m%d" % number for number in range(6)]


def test_dead_letters_are_shown_and_put_back(server: str) -> None:
    filled(server, "risky", 2)
    run("create", "risky", "careful", "--deliveries-max", "4", server=server)
    assert "no dead letters" in run("dead", "careful", server=server)
    assert "no dead letters" in run("dead", "nobody", server=server, code=1)
    with connect(server) as log, log.group("careful").join("risky") as member:
        batch = next(member)
        batch.reject("too heavy", batch.messages[:1])
        batch.ack()
        while any(it.group.dying for it in log.group("careful").describe("risky")):
            pass
    shown = run("dead", "careful", server=server)
    assert "too heavy" in shown
    assert "m0" in shown
    assert "only the first" not in run("dead", "careful", "--limit", "1", server=server)
    (letter,) = json.loads(run("dead", "careful", "--json", server=server))
    assert (letter["origin"], letter["deliveries"]) == ("risky", 1)
    assert "1 dead letter" in run("redrive", "risky", "careful", server=server)
    assert "0 dead letters" in run("redrive", "risky", "careful", server=server)
    until_left(server)
    assert "no limit" in run("alter", "risky", "careful", "--lease", "7", server=server)
    (described,) = json.loads(run("describe", "risky", "careful", "--json", server=server))
    assert (described["lease_ms"], described["deliveries_max"]) == (7000, None)


def until_left(server: str) -> None:
    with connect(server) as log:
        while any(it.members for it in log.group("careful").describe("risky")):
            pass


@pytest.mark.parametrize(
    "options", [("--cursor", "c"), ("--until-now",), ("--ignore-pause",)], ids=str
)
def test_a_group_takes_no_options_of_other_readers(options: tuple[str, ...]) -> None:
    assert "--group shares" in refused("x", "--group", "g", *options)


def test_an_id_is_no_start_of_a_group() -> None:
    assert "no place in the log" in refused("x", "--group", "g", "--from", "17")
