"""A client without a connection says what it waits for; one that cannot succeed says so soon."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from hosts.namespaces import Host, NoNamespaces

from broker.client import Client, Deadlines, connect
from broker.client.errors import NodeUnreachable
from tests.broker_process import BrokerProcess, free_port
from tests.hanging_address import hanging_address
from tests.missing_part import missing_part
from tests.network_namespaces import NOBODY_IP, two_hosts

GUARD_S = 90.0
LONG_S = 300.0
"""A deadline that none of these calls may use up."""


@pytest.fixture(scope="module")
def astray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str, str]]:
    """A broker that advertises a port at which nothing listens; where it is, and what it gives."""
    wrong, right = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    data = tmp_path_factory.mktemp("astray")
    with BrokerProcess(data, right, pchannels="2", advertise=wrong) as broker:
        yield broker, right, wrong


async def append(log: Client) -> None:
    await log.append("far", b"x", deadline_s=LONG_S)


async def append_batch(log: Client) -> None:
    await log.append_batch("far", [b"x"], deadline_s=LONG_S)


async def begin_transaction(log: Client) -> None:
    async with log.txn("far", deadline_s=LONG_S):
        pass


async def read(log: Client) -> None:
    async for _ in log.read("far"):
        pass


async def read_batches(log: Client) -> None:
    async for _ in log.read_batches("far"):
        pass


async def read_to_now(log: Client) -> None:
    async for _ in log.read("far", until="now"):
        pass


async def cut(log: Client) -> None:
    await log.cut("far")


async def whole_cut(log: Client) -> None:
    await log.cut("far", whole_broadcasts=True)


CALLS = (append, append_batch, begin_transaction, read, read_batches, read_to_now, cut, whole_cut)


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_to_a_node_that_cannot_be_reached_names_the_address_and_who_gave_it(
    call: Callable[[Client], Awaitable[None]], astray: tuple[BrokerProcess, str, str]
) -> None:
    _, server, wrong = astray
    async with connect(server, deadlines=Deadlines(call_s=LONG_S)) as log:
        if "far" not in {it.name for it in await log.collections.list()}:
            await log.collections.create("far")
        with anyio.fail_after(GUARD_S), pytest.raises(NodeUnreachable) as raised:
            await call(log)
    assert (raised.value.address, raised.value.given_by) == (wrong, server)
    assert f"{server} gave this address for a node: start that node with --advertise" in str(
        raised.value
    )


async def test_a_command_to_a_node_on_a_host_that_never_answers_ends_with_that_sentence(
    tmp_path: Path,
) -> None:
    """Nothing refuses the connection here: it just never comes about."""
    try:
        with two_hosts() as (server, client):
            settings = {"pchannels": "1", "advertise": NOBODY_IP, "insecure": "true"}
            with BrokerProcess(tmp_path, "0.0.0.0:0", inside=server.inside, **settings) as broker:
                at = ("--server", f"{server.ip}:{broker.port}")
                await command("collection", "create", "far", *at, host=client)
                for words in (("produce", "far", *at), ("consume", "far", *at)):
                    code, said = await command(*words, host=client)
                    assert code == 1
                    assert f"cannot reach {broker.address}: " in said
                    assert f"{server.ip}:{broker.port} gave this address for a node" in said
    except NoNamespaces as why:
        missing_part(f"network namespaces cannot be made here: {why}")


async def test_a_reader_waits_for_a_broker_that_restarts_and_says_so(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path, listen, pchannels="2") as broker:
        async with connect(listen) as log:
            await log.collections.create("far", shards=2)
            await log.append("far", b"before")
        with consuming("far", listen) as consumer:
            assert await line_of(consumer.stdout) == "before\n"
            broker.kill()
            waiting = await line_of(consumer.stderr)
            assert_waits(waiting, f" s for an answer of {listen}: ")
            with BrokerProcess(tmp_path, listen, pchannels="2"):
                async with connect(listen) as log:
                    await log.append("far", b"after")
                assert await line_of(consumer.stdout) == "after\n"
                while "no longer waiting" not in (line := await line_of(consumer.stderr)):
                    assert line.startswith("tidemark: waiting ")


async def test_a_reader_says_that_a_broker_is_silent(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, pchannels="1") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("far")
            await log.append("far", b"before")
        with consuming("far", broker.address) as consumer:
            assert await line_of(consumer.stdout) == "before\n"
            os.kill(broker.pid, signal.SIGSTOP)
            said = await line_of(consumer.stderr)
            assert "waiting" in said
            assert "for messages and time ticks (by-dev-rootcoord-dml_0)" in said
            assert f"{broker.address} sends nothing" in said
            os.kill(broker.pid, signal.SIGCONT)
            while "no longer waiting for messages" not in await line_of(consumer.stderr):
                pass


async def test_a_command_says_that_it_waits_for_a_server_that_does_not_answer() -> None:
    with hanging_address() as (host, port):
        code, said = await command("health", "--server", f"{host}:{port}")
    assert code == 1
    first, *_, last = said.splitlines()
    assert assert_waits(first, f" s for an answer of {host}:{port}: no answer yet") == ""
    assert last.startswith(f"tidemark: {host}:{port} did not answer")


def assert_waits(line: str, words: str) -> str:
    """It tells of a wait of two seconds, or more on a busy machine; returns what follows."""
    found = re.match(rf"tidemark: waiting (\d+){re.escape(words)}", line)
    assert found, line
    assert int(found[1]) >= 2, line
    return line[found.end() :]


async def command(*words: str, host: Host | None = None) -> tuple[int, str]:
    """Run a command with input that never ends; its exit code and what it says on stderr."""
    inside = host.inside if host is not None else ()
    reading, writing = os.pipe()
    try:
        os.write(writing, b"line\n")
        with anyio.fail_after(GUARD_S):
            ended = await anyio.run_process(
                [*inside, sys.executable, "-m", "broker", *words], stdin=reading, check=False
            )
    finally:
        os.close(reading)
        os.close(writing)
    return ended.returncode, ended.stderr.decode()


@contextlib.contextmanager
def consuming(target: str, server: str) -> Iterator["subprocess.Popen[str]"]:
    words = ("consume", target, "--format", "raw", "--server", server)
    with subprocess.Popen(
        [sys.executable, "-m", "broker", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as consumer:
        try:
            yield consumer
        finally:
            consumer.kill()


async def line_of(pipe: object) -> str:
    with anyio.fail_after(GUARD_S):
        line: str = await anyio.to_thread.run_sync(pipe.readline, abandon_on_cancel=True)  # type: ignore[attr-defined]
    assert line, "the command has ended"
    return line
