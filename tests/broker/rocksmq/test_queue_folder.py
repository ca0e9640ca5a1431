"""A folder belongs to one process, survives kill -9 of it, and names what it cannot read."""

# ruff: noqa: ASYNC240 - nothing else of a test runs while it looks at a folder

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.rocksmq import (
    FolderInUse,
    FolderRefused,
    FolderVersionRefused,
    RocksdictMissing,
    RocksMQ,
    RocksMQFull,
)
from broker.rocksmq.opened_queue import OpenedQueue
from broker.rocksmq.queue_folder import QueueFolder
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, with_group

HOLDER = """
import asyncio, sys
from broker.rocksmq import RocksMQ
async def hold():
    async with await RocksMQ.open(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(hold())
"""
WITHOUT_EXTRA = """
import asyncio, sys
sys.modules["rocksdict"] = None  # as if it were not installed
from broker.rocksmq import RocksMQ, RocksMQError
try:
    asyncio.run(RocksMQ.open(sys.argv[1]))
except RocksMQError as error:
    print(type(error).__name__, error, flush=True)
"""


def start_holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=60)


async def test_a_second_process_is_refused_and_told_the_folder_and_the_pid(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    try:
        with pytest.raises(
            FolderInUse, match=f"{tmp_path} is in use by process {holder.pid}"
        ) as it:
            await RocksMQ.open(tmp_path)
        assert (it.value.pid, it.value.folder) == (holder.pid, tmp_path)
    finally:
        end(holder, signal.SIGTERM)


async def test_the_same_process_is_refused_too_until_it_closes(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path):
        with pytest.raises(FolderInUse, match=f"process {os.getpid()}"):
            await RocksMQ.open(tmp_path)
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.create_channel("a")


async def test_a_killed_process_leaves_the_folder_free(tmp_path: Path) -> None:
    end(start_holder(tmp_path), signal.SIGKILL)
    async with await RocksMQ.open(tmp_path):
        assert (tmp_path / "rocksmq.lock").read_text().strip() == str(os.getpid())


async def test_a_folder_of_another_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.create_channel("a")
    (tmp_path / "format.json").write_text(json.dumps({"rocksmq": 7}))
    before = sorted((it, it.stat().st_mtime_ns) for it in (tmp_path / "store").iterdir())
    with pytest.raises(FolderVersionRefused, match="version 7; this release reads version 1") as it:
        await RocksMQ.open(tmp_path)
    assert (it.value.found, it.value.known) == (7, 1)
    assert sorted((it, it.stat().st_mtime_ns) for it in (tmp_path / "store").iterdir()) == before
    (tmp_path / "format.json").write_text(json.dumps({"rocksmq": 1}))
    async with await RocksMQ.open(tmp_path) as mq:
        assert mq.channels() == ["a"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layout": 1}'])
async def test_a_version_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "format.json").write_text(text)
    with pytest.raises(FolderRefused, match=r"cannot read .*format\.json"):
        await RocksMQ.open(tmp_path)


async def test_a_folder_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FolderRefused, match=r"no folder of a RocksMQ: it has 'precious\.txt'"):
        await RocksMQ.open(tmp_path)
    assert [it.name for it in tmp_path.iterdir()] == ["precious.txt"]
    with pytest.raises(FolderRefused, match="cannot use RocksMQ folder"):
        await RocksMQ.open(tmp_path / "precious.txt")


async def test_a_store_without_its_version_is_refused(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path):
        pass
    (tmp_path / "format.json").unlink()
    with pytest.raises(FolderRefused, match=r"format\.json is missing"):
        await RocksMQ.open(tmp_path)


async def test_a_missing_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path / "a" / "b") as mq:
        await mq.create_channel("a")
    assert (tmp_path / "a" / "b" / "store").is_dir()


async def test_a_draft_of_the_version_that_a_kill_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "rocksmq.lock").write_text("")
    (tmp_path / "format.4711.new").write_text("{")
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.create_channel("a")


def test_a_holder_that_has_written_no_pid_yet_is_unknown(tmp_path: Path) -> None:
    held = QueueFolder.hold(tmp_path)
    try:
        (tmp_path / "rocksmq.lock").write_text("")
        with pytest.raises(FolderInUse, match="process unknown") as it:
            QueueFolder.hold(tmp_path)
        assert it.value.pid is None
    finally:
        held.release()


def test_without_the_extra_a_line_says_how_to_install_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRA, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == (
        "RocksdictMissing RocksMQ stores messages with the package rocksdict, which is not"
        " installed here; add it with: pip install '.[rocksmq]' in Tidemark's folder\n"
    )
    assert issubclass(RocksdictMissing, ImportError)


async def test_metadata_of_a_later_release_is_refused_and_the_folder_let_go(tmp_path: Path) -> None:
    store = FaultyStore({b"meta/orders/replicas": b"3"})
    for _ in range(2):
        with pytest.raises(FolderRefused, match="meta/orders/replicas"):
            open_on(store, tmp_path)
        assert store.closed


async def test_a_store_that_fails_at_opening_lets_the_folder_go(tmp_path: Path) -> None:
    store = FaultyStore()
    store.full = True
    for _ in range(2):
        with pytest.raises(RocksMQFull, match="disk is full"):
            open_on(store, tmp_path)
    store.full = False
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)


async def test_a_damaged_store_is_refused_with_what_rocksdb_says(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.create_channel("a")
    (tmp_path / "store" / "CURRENT").write_text("nonsense")
    for _ in range(2):
        with pytest.raises(FolderRefused, match="CURRENT"):
            await RocksMQ.open(tmp_path)


async def test_all_metadata_is_read_however_much_there_is(tmp_path: Path) -> None:
    entries = {b"meta/g%05d/group" % number: b"" for number in range(25_000)}
    opened = OpenedQueue.open(tmp_path, 1, FaultyStore(entries).opener())
    try:
        assert len(opened.table.groups) == 25_000
    finally:
        opened.close()


async def test_an_opening_that_is_cancelled_lets_the_folder_go(tmp_path: Path) -> None:
    opening = asyncio.get_running_loop().create_task(RocksMQ.open(tmp_path))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    async with asyncio.timeout(60):
        while True:
            try:
                mq = await RocksMQ.open(tmp_path)
            except FolderInUse:
                await asyncio.sleep(0.01)
            else:
                await mq.close()
                return
