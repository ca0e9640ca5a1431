"""Limits as a client in Go meets them: grpc-go and Go's protobuf, on messages of schemas/proto.

Milvus's own producer in Go cannot be used: it is in `internal/` of the module
github.com/milvus-io/milvus, which Go lets no other module import, and which its proxy does not
offer. The messages that Milvus publishes for others (its module pkg/v2) have no `rate_limit` yet.
So the program here follows the frames as that producer does.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from broker.app import Broker
from broker.client import Client, connect
from tests.local_broker import local_broker
from tests.missing_part import missing_part

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "schemas" / "proto"
PROGRAM = Path(__file__).with_name("go_producer")
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
BUILD_S, GUARD_S = 900, 90.0
RATE, SIZE = 100_000, 10_000
LIMITED = "STREAMING_CODE_RATE_LIMIT_REJECTED"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command with its first argument."""
    if GO is None:
        pytest.skip("Go is not installed here")
    folder = tmp_path_factory.mktemp("go")
    fetched = subprocess.run(
        [GO, "mod", "download"], cwd=PROGRAM, capture_output=True, text=True, timeout=BUILD_S,
        check=False,
    )  # fmt: skip
    if fetched.returncode:
        missing_part(f"the modules of the program cannot be fetched: {fetched.stderr}")
    environment = os.environ | {"GOFLAGS": "-buildvcs=false -mod=readonly", "CGO_ENABLED": "0"}
    # Neither optimized nor with C: it runs for seconds, and its build would take twice as long.
    build = [GO, "build", "-gcflags=all=-N -l", "-o", str(folder / "producer"), "."]
    subprocess.run(build, cwd=PROGRAM, env=environment, timeout=BUILD_S, check=True)
    names = [str(it.relative_to(PROTOS)) for it in sorted(PROTOS.rglob("*.proto"))]
    described = folder / "descriptors"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", "--include_imports"]
    subprocess.run(
        [*protoc, f"--descriptor_set_out={described}", *names], check=True, timeout=BUILD_S
    )
    return [str(folder / "producer"), str(described)]


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[Broker, Client, str]]:
    """A broker, a client, and a vchannel of the collection `loud`."""
    async with (
        local_broker(folder, pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        made = await log.collections.create("loud", shards=1)
        yield broker, log, made.vchannels[0]


class Said:
    """What the program prints, line by line."""

    def __init__(self, lines: AsyncIterator[dict[str, Any]]) -> None:
        self._lines = lines
        self.told: list[tuple[str, float]] = []
        self.sent = 0
        """How many messages, when it was told last."""

    async def until(self, state: str) -> None:
        """Wait until it is told of this state."""
        while not self.told or self.told[-1][0] != state:
            line = await anext(self._lines)
            self._note(line)

    async def got(self) -> dict[str, Any]:
        """What it got in the end."""
        while "told" in (line := await anext(self._lines)):
            self._note(line)
        return line

    def _note(self, line: dict[str, Any]) -> None:
        self.told.append((line["told"], line["rate"]))
        self.sent = line["sent"]


@asynccontextmanager
async def producing(
    program: Sequence[str], log: Client, how: str, vchannel: str, seconds: int
) -> AsyncIterator[Said]:
    (channel,) = await log.admin.channels()
    arguments = [how, channel.name, str(channel.term), vchannel, str(seconds), str(SIZE)]
    command = [*program, channel.address, *arguments]
    with anyio.fail_after(GUARD_S):
        async with await anyio.open_process(command, stderr=sys.stderr) as process:
            assert process.stdout is not None
            yield Said(lines_of(TextReceiveStream(process.stdout)))


async def lines_of(stream: TextReceiveStream) -> AsyncIterator[dict[str, Any]]:
    rest = ""
    async for text in stream:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield json.loads(line)


async def test_one_that_obeys_slows_down_to_the_rate_and_nothing_is_refused(
    program: list[str], tmp_path: Path
) -> None:
    async with world(tmp_path) as (_, log, vchannel):
        await log.config.set("limits", f"collection:loud in_bytes={RATE}")
        async with producing(program, log, "obeys", vchannel, 8) as said:
            got = await said.got()
    assert ("SLOWDOWN", RATE) in said.told
    assert got["refused"] == {}, got
    assert got["landed"] == got["sent"] > 0
    assert got["late"] * SIZE <= 4 * RATE * 2.5, "in the last four seconds"


async def test_one_that_ignores_the_frames_is_refused_with_code_16_and_its_stream_goes_on(
    program: list[str], tmp_path: Path
) -> None:
    async with world(tmp_path) as (_, log, vchannel):
        await log.config.set("limits", f"collection:loud in_bytes={RATE // 10}")
        async with producing(program, log, "ignores", vchannel, 4) as said:
            got = await said.got()
    assert ("SLOWDOWN", RATE // 10) in said.told
    assert got["refused"][LIMITED] > 0
    assert set(got["refused"]) == {LIMITED}
    assert "collection 'loud'" in got["cause"]
    assert "is over its limit of appends; try again in" in got["cause"]
    assert got["landed"] + got["refused"][LIMITED] == got["sent"]
    assert got["landed"] > 0


async def test_one_that_obeys_sends_nothing_until_the_rejection_ends(
    program: list[str], tmp_path: Path
) -> None:
    async with (
        world(tmp_path) as (_, log, vchannel),
        producing(program, log, "obeys", vchannel, 20) as said,
    ):
        # Everything is short of memory when there is so little.
        await log.config.set("memory_bytes_max", "1000000")
        await said.until("REJECT")
        before = said.sent
        await log.config.delete("memory_bytes_max")
        await said.until("NORMAL")
        # One may have been on its way to the counter.
        assert said.sent <= before + 1
        normal = said.sent
        got = await said.got()
    refused = got["refused"].get(LIMITED, 0)
    assert set(got["refused"]) <= {LIMITED}
    assert refused <= 32, "only what was on its way"
    assert got["landed"] + refused == got["sent"]
    assert got["sent"] > normal, "it goes on"


async def test_calls_beyond_the_limit_end_in_gos_own_words(
    program: list[str], tmp_path: Path
) -> None:
    async with world(tmp_path) as (broker, log, _):
        await log.config.set("limits", "identity:127.0.0.1 calls=5")
        command = [*program, broker.address, "calls", "40"]
        with anyio.fail_after(GUARD_S):
            ended = await anyio.run_process(command, stderr=sys.stderr)
    found = [json.loads(it) for it in ended.stdout.decode().splitlines()]
    assert len(found) == 40
    refused = [it for it in found if it["code"] == "ResourceExhausted"]
    assert {it["code"] for it in found} == {"OK", "ResourceExhausted"}
    assert all(it["wait_ms"] > 1_000 for it in refused)
