"""`tidemark describe` and shell completion, against a real broker and in a real bash."""

import json
import os
import pty
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.cli import describing
from broker.cli.describing import describe
from broker.client import connect
from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, run_forked

PATIENCE_S = 60
ROOT = Path(__file__).parents[3]
PATIENT = f"""
from broker.cli.commands import completions
completions.ANSWER_S = {PATIENCE_S}
from broker.cli.main import run
run()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("describe") / "data", pchannels="3") as broker:
        yield broker.address


@pytest.fixture(scope="module")
def trains(server: str) -> tuple[str, ...]:
    """A collection with a cursor that is behind by three messages."""

    async def made() -> tuple[str, ...]:
        async with connect(server) as log:
            collection = await log.collections.create("trains", shards=2)
            await log.append_batch(collection.vchannels[0], [b"one", b"two"])
            cut = await log.cut("trains")
            await log.cursor("billing").move(cut.tick, "trains")
            await log.append_batch(collection.vchannels[1], [b"a", b"b", b"c"])
            await log.cut("trains")
            return tuple(collection.vchannels)

    return anyio.run(made)


async def described(server: str, name: str) -> dict[str, Any]:
    return await anyio.to_thread.run_sync(describe, server, name)


@pytest.fixture
def counts_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted too late is left out, and a busy machine counts slowly."""
    monkeypatch.setattr(describing, "COUNT_S", PATIENCE_S)


@pytest.mark.usefixtures("counts_for_long")
async def test_a_collection_is_described_with_its_shards_and_what_reads_it(
    server: str, trains: tuple[str, ...]
) -> None:
    async with (
        connect(server) as log,
        log.read_batches(trains[0], start="latest") as reader,
    ):
        await until_read(reader)
        found = (await described(server, "trains"))["collection"]
    assert (found["messages"], found["schema"]) == (5, None)
    assert [it["vchannel"] for it in found["shards"]] == list(trains)
    assert [it["messages"] for it in found["shards"]] == [2, 3]
    assert found["shards"][0]["readers"] == 1
    assert all(it["state"] == "assigned" and it["address"] for it in found["shards"])
    assert [it["cursor"] for it in found["cursors"]] == ["billing"]
    assert found["cursors"][0]["behind_ms"] >= 0


async def until_read(reader: Any) -> None:
    """Return when the broker serves the reader."""
    with anyio.fail_after(PATIENCE_S):
        await reader.__anext__()  # a closed tick


@pytest.mark.usefixtures("counts_for_long")
async def test_a_channel_and_a_cursor_are_described(server: str, trains: tuple[str, ...]) -> None:
    vchannel = (await described(server, trains[1]))["vchannel"]
    assert (vchannel["collection"], vchannel["shard"], vchannel["messages"]) == ("trains", 1, 3)
    pchannel = (await described(server, vchannel["pchannel"]))["pchannel"]
    assert {"vchannel": trains[1]} in pchannel["vchannels"]
    assert pchannel["collections"] == [{"collection": "trains"}]
    cursor = (await described(server, "billing"))["cursor"]
    assert cursor["messages_behind"] == 3
    assert [it["channel"] for it in cursor["channels"]] == sorted(trains)


async def test_who_holds_the_log_and_who_was_passed_is_described(tmp_path: Path) -> None:
    settings = {
        "segment_bytes": "65536",
        "retention_bytes": "65536",
        "retention_check_s": "0.2",
        "snapshot_period_s": "0.2",
        "pchannels": "1",
    }
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        async with connect(broker.address) as log:
            (shard,) = (await log.collections.create("trains")).vchannels
            await log.cursor("billing").reset("all", "trains")
            for _ in range(64):
                await log.append("trains", bytes(4096))
            found = await until_held(broker.address, "holders")
            assert {it["holder"] for it in found["holders"]} >= {"cursor billing"}
            assert found["passed"] == []
            for name, kind in ((shard, "vchannel"), (shard.rpartition("_")[0], "pchannel")):
                facts = (await described(broker.address, name))[kind]
                assert "cursor billing" in {it["holder"] for it in facts["holders"]}
            (held,) = (await described(broker.address, "billing"))["cursor"]["holders"]
            assert held["held_bytes"] > 0
            assert held["until_ms"] > 0
            await log.config.set("hold_bytes_max", "65536")
            found = await until_held(broker.address, "passed")
            assert (found["passed"][0]["passed"], found["passed"][0]["cause"]) == (
                "cursor billing",
                "bytes",
            )
        text = shown("describe", "billing", server=broker.address).stdout
    assert "cursor billing" in text


async def until_held(server: str, what: str) -> dict[str, Any]:
    """What is described of the collection once somebody is named there."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found: dict[str, Any] = (await described(server, "trains"))["collection"]
            if found[what]:
                return found
            await anyio.sleep(0.1)


def shown(*arguments: str, server: str) -> "subprocess.CompletedProcess[str]":
    return run_forked(
        [*COMMAND, *arguments],
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def test_it_is_printed_as_tables_and_as_json(server: str, trains: tuple[str, ...]) -> None:
    text = shown("describe", "trains", server=server).stdout
    assert text.startswith("collection\nname ")
    assert all(it in text for it in ("shards", "billing", *trains))
    found = json.loads(shown("describe", "trains", "--json", server=server).stdout)
    assert list(found) == ["collection"]
    lost = shown("describe", "trans", server=server)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert (
        "there is no collection, channel or cursor 'trans'; did you mean 'trains'?" in lost.stderr
    )


@pytest.fixture
def shell(tmp_path: Path, server: str) -> dict[str, str]:
    """An environment in which `tidemark` is a command."""
    command = tmp_path / "tidemark"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m broker "$@"\n')
    command.chmod(0o755)
    paths = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    return os.environ | paths | {"TIDEMARK_SERVER": server, "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def patient_shell(tmp_path: Path, shell: dict[str, str]) -> dict[str, str]:
    """Its `tidemark` offers names that come late, too: a busy machine takes more than 0.5 s."""
    program = shlex.join([sys.executable, "-c", PATIENT])
    (tmp_path / "tidemark").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    return shell


COMPLETE = """
source <(tidemark completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tidemark_completion tidemark
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str, shell: dict[str, str]) -> set[str]:
    command = ["bash", "--norc", "-c", COMPLETE, "bash", "tidemark", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env=shell, timeout=PATIENCE_S, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_names_that_the_broker_has(
    patient_shell: dict[str, str], trains: tuple[str, ...]
) -> None:
    assert completed("cons", shell=patient_shell) == {"consume", "consumption"}
    assert "--filter" in completed("consume", "trains", "--f", shell=patient_shell)
    assert completed("consume", "tr", shell=patient_shell) == {"trains"}
    assert completed("cursors", "drop", "", shell=patient_shell) == {"billing"}
    assert completed("describe", "", shell=patient_shell) == {"billing", "trains"}


def test_completion_is_silent_when_no_broker_answers(shell: dict[str, str]) -> None:
    assert completed("consume", "tr", shell=shell | {"TIDEMARK_SERVER": "127.0.0.1:1"}) == set()
    assert completed("consume", "tr", shell=shell | {"TIDEMARK_SERVER": "nowhere"}) == set()


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_other_shells_get_a_script_of_theirs(name: str, shell: dict[str, str]) -> None:
    script = subprocess.run(
        ["tidemark", "completion", name],
        capture_output=True,
        text=True,
        env=shell,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    assert f"_TIDEMARK_COMPLETE=complete_{name}" in script


def test_the_tab_key_completes_in_an_interactive_bash(
    patient_shell: dict[str, str], trains: tuple[str, ...]
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=patient_shell | {"PS1": "ready> ", "TERM": "dumb"},
        start_new_session=True,
    ) as bash:
        os.close(theirs)
        try:
            read_until(ours, "ready> ")
            os.write(ours, b"source <(tidemark completion bash); echo so''urced\n")
            read_until(ours, "\nsourced")
            os.write(ours, b"echo tidemark; tidemark consume tra\t")
            read_until(ours, "consume trains ")
        finally:
            bash.kill()
            os.close(ours)


def read_until(descriptor: int, wanted: str) -> None:
    seen = ""
    while wanted not in seen.replace("\r", ""):
        readable, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        assert readable, seen
        seen += os.read(descriptor, 4096).decode(errors="replace")
