"""`tidemark consume` against a real broker: what reaches stdout, and how it ends."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from broker.cli.lines.stdout_writer import PIPE_PIECE_BYTES
from broker.client import Message, connect
from broker.client.sync import connect as sync_connect
from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, ForkedProcess

PATIENCE_S = 60
LOOK_S = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("consume") / "data", pchannels="3") as broker:
        yield broker.address


def started(*arguments: str, server: str) -> "subprocess.Popen[bytes]":
    return ForkedProcess(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TIDEMARK_SERVER": server},
    )


def created(name: str, server: str) -> str:
    """The name of a new collection of one shard."""
    with sync_connect(server) as log:
        return log.collections.create(name).name


def consumed(*arguments: str, server: str) -> bytes:
    with started("consume", *arguments, server=server) as process:
        out, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaint) == (0, b"")
    return out


def refused(*arguments: str, server: str = "127.0.0.1:1") -> str:
    with started("consume", *arguments, server=server) as process:
        out, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, b""), complaint
    return complaint.decode()


async def test_every_kind_of_append_is_written_as_the_message_reader_gives_it(server: str) -> None:
    async with connect(server) as log:
        await log.collections.create("kinds", shards=2)
        names = (await log.collections.get("kinds")).vchannels
        await log.append("kinds", b"single", key="k", properties={"from": "Ulm"})
        await log.append("kinds", b"bytes \xff", key=7)
        await log.append("kinds", b"deleted", type=3)
        await log.append_batch(names[0], [b"one", b"two"], keys=[b"a", None])
        await log.append_messages(names[1], [Message(b"both", key="x"), Message(b"or neither")])
        # A copy is in the log of each vchannel.
        await log.broadcast.append("kinds", b"all")
        found = [it async for it in log.read("kinds", until="now").messages()]
    expected = [
        (it.vchannel, it.id, it.tick, it.type, it.key, it.payload, it.properties) for it in found
    ]
    out = await anyio.to_thread.run_sync(
        lambda: consumed("kinds", "--until-now", server=server).decode()
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == len(found) >= 9
    for it in found:
        (row,) = [r for r in rows if (r["vchannel"], r["id"]) == (it.vchannel, it.id)]
        assert (row["tick"], row["type"], row["collection"]) == (it.tick, it.type, "kinds")
        assert row.get("properties", {}) == it.properties
    assert sorted(r["id"] for r in rows) == sorted(it[1] for it in expected)


def test_templates_filters_limits_and_counts_work_together(server: str, tmp_path: Path) -> None:
    target = created("lines", server)
    file = tmp_path / "lines"
    file.write_text("".join(f'{{"k": "{"AB"[it % 2]}{it}"}}\n' for it in range(40)))
    with started("produce", target, str(file), "--key", "k", server=server) as producer:
        assert producer.wait(PATIENCE_S) == 0
    out = consumed(target, "-e", "-f", "%{key}", "-F", "key=A*", "-n", "3", server=server)
    assert out == b"A0\nA2\nA4\n"
    assert consumed(target, "-e", "-c", server=server) == b"40\n"
    assert consumed(target, "-e", "-c", "-F", "key!=A*", "-F", "key=B1*", server=server) == b"6\n"
    assert consumed(target, "-e", "-F", "key=C", server=server) == b""


def test_a_wrong_format_or_filter_is_refused_before_a_broker_is_asked() -> None:
    assert "did you mean 'key'" in refused("any", "--format", "%{kye}")
    assert "did you mean 'key'" in refused("any", "--filter", "kye=1")
    assert "use json, raw, hex" in refused("any", "--format", "xml")


def test_a_message_reaches_an_idle_pipe_at_once(server: str) -> None:
    target = created("idle", server)
    with started("consume", target, "--format", "raw", server=server) as consumer:
        assert consumer.stdout is not None
        for number in range(3):
            line = b"line %d\n" % number
            subprocess.run(
                [sys.executable, "-m", "broker", "produce", target],
                input=line,
                check=True,
                capture_output=True,
                env=os.environ | {"TIDEMARK_SERVER": server},
                timeout=PATIENCE_S,
            )
            assert consumer.stdout.readline() == line
        consumer.send_signal(signal.SIGINT)
        assert consumer.communicate(timeout=PATIENCE_S) == (b"", b"")
        assert consumer.returncode == 0


async def test_ctrl_c_ends_it_also_when_nobody_reads_the_full_pipe(server: str) -> None:
    target = "full"
    async with connect(server) as log:
        await log.collections.create(target)
        for _ in range(20):
            await log.append_batch(target, [b"%07d" % it * 10 for it in range(1000)])
    with started("consume", target, "--format", "raw", server=server) as consumer:
        assert consumer.stdout is not None
        with anyio.fail_after(PATIENCE_S):
            # No event tells that the other end of a pipe waits.
            while not full(consumer.stdout.fileno()):  # noqa: ASYNC110
                await anyio.sleep(LOOK_S)
        consumer.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(consumer.wait, PATIENCE_S)
        out, complaint = consumer.communicate(timeout=PATIENCE_S)
    assert (consumer.returncode, complaint) == (0, b"")
    assert {len(it) for it in out.split(b"\n")[:-1]} == {70}


def full(pipe: int) -> bool:
    """Whether as much waits in the pipe as it takes, but for what a write leaves over."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return bool(waiting > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - 2 * PIPE_PIECE_BYTES)
