"""A disk that appends have filled recovers by drop and purge alone, also over kill -9."""

import logging
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest

from broker.client import Client, Message, NoSuchCollection, TidemarkError, connect
from tests.broker_process import BrokerProcess
from tests.chaos.full_disk import failures, is_only_late
from tests.chaos.test_space import until_rewriting

DISK_MIB = 64
SETTINGS = {
    "pchannels": "2",
    "segment_bytes": str(4 << 20),
    "tail_bytes_max": str(64 << 10),
    "retention_check_s": "0.5",
    "snapshot_period_s": "1",
    "reserve_bytes": str(8 << 20),
}
PAYLOAD, BATCH = b"." * 50_000, 20
TURNS = 8
FREED_S_MAX = 120.0
FILL_S_MAX = 240.0
REFUSALS = ("storage refused", "no time ticks available")
"""By the log or the reserve; or, where the machine is slow, by the metadata beside it."""
RESTARTING = "locate the channel again"
"""What an append is told whose time ends while the owner of a refusing log is restarted."""


class SmallDisk(Protocol):
    """Starts a broker on a disk that outlives it; `data`: the folder, seen from outside."""

    data: Path

    def __call__(self) -> AbstractContextManager[BrokerProcess]: ...


told = logging.getLogger("tests.chaos")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk is a tmpfs in a mount name space that a process keeps open."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = f'mount -t tmpfs -o size={DISK_MIB}m tidemark-test "$0" && echo ready && exec sleep 900'
    keeper = subprocess.Popen(
        [*unshare, "sh", "-c", mount, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None
    if keeper.stdout.readline() != "ready\n":
        pytest.fail("a small file system of its own is needed; run as root, on Linux")
    enter = ["nsenter", f"--target={keeper.pid}", "--mount"]
    enter += [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]

    class Starts:
        data = Path(f"/proc/{keeper.pid}/root{tmp_path}/data")

        @contextmanager
        def __call__(self) -> Iterator[BrokerProcess]:
            broker = BrokerProcess(tmp_path / "data", inside=enter, **SETTINGS)
            try:
                yield broker
            finally:
                broker.kill()

    try:
        yield Starts()
    finally:
        keeper.kill()
        keeper.wait()
        keeper.stdout.close()


async def test_a_purge_makes_a_full_disk_take_appends_again(start: SmallDisk) -> None:
    with start() as broker:
        async with connect(broker.address) as log:
            await make(log, "bulk", "kept")
            await put(log, "kept", 0)
            kept = await numbers(log, "kept")
            await fill_disk(log, "bulk")
            cut = await log.cut("bulk")
            await until_done(lambda: log.purge("bulk", upto=cut.tick))
            await until_taken(log, "kept", 1)
            assert await numbers(log, "kept") == kept + [1] * BATCH
            assert await numbers(log, "bulk") == []
        assert broker.terminate() == 0


async def test_a_drop_makes_a_full_disk_take_appends_again(start: SmallDisk) -> None:
    with start() as broker:
        async with connect(broker.address) as log:
            await make(log, "bulk", "kept")
            await put_side_by_side(log)
            await fill_disk(log, "bulk")
            await until_done(lambda: log.collections.drop("bulk"))
            await until_taken(log, "kept", TURNS)
            expected = sorted(it for turn in range(TURNS + 1) for it in [turn] * BATCH)
            assert await numbers(log, "kept") == expected
        assert broker.terminate() == 0


async def test_kill_nine_on_the_full_disk_and_amid_the_rewriting_loses_nothing(
    start: SmallDisk, rounds: int
) -> None:
    chance, amid = random.Random(rounds), 0
    with start() as broker:
        async with connect(broker.address) as log:
            await make(log, "bulk", "kept")
            await put_side_by_side(log)
            await fill_disk(log, "bulk")
    expected = sorted(it for turn in range(TURNS) for it in [turn] * BATCH)
    with start() as broker:
        async with connect(broker.address) as log:
            assert await numbers(log, "kept") == expected
            await until_done(lambda: log.collections.drop("bulk"))
            amid += await until_rewriting(start.data, chance)
    for _ in range(2):
        with start() as broker:
            async with connect(broker.address) as log:
                assert await numbers(log, "kept") == expected
                amid += await until_rewriting(start.data, chance)
    assert amid, "no kill fell into a rewriting"
    with start() as broker:
        async with connect(broker.address) as log:
            await until_taken(log, "kept", TURNS)
            assert await numbers(log, "kept") == [*expected, *[TURNS] * BATCH]
        assert broker.terminate() == 0


async def make(log: Client, *names: str) -> None:
    for name in names:
        await log.collections.create(name, shards=2)


async def put_side_by_side(log: Client) -> None:
    """So that segments hold some of what is kept."""
    for turn in range(TURNS):
        await put(log, "kept", turn)
        await put(log, "bulk", turn)
        await put(log, "bulk", turn)


async def put(log: Client, name: str, number: int, deadline_s: float = 60.0) -> None:
    messages = [Message(b"%d " % number + PAYLOAD, key=b"%d" % it) for it in range(BATCH)]
    await log.append_messages(name, messages, deadline_s=deadline_s)


async def fill_disk(log: Client, name: str) -> None:
    """Append until that is refused; a little more is found where logs had prepared segments."""
    refused = landed = 0
    with anyio.fail_after(FILL_S_MAX):
        while refused < 3:
            assert landed < 2 * (DISK_MIB << 20) // (BATCH * len(PAYLOAD)), "the disk is not full"
            try:
                await put(log, name, landed, deadline_s=2.0)
                landed += 1
            except TidemarkError as error:
                if any(it in str(each) for it in REFUSALS for each in failures(error)):
                    refused += 1
                    told.info("refused after %d batches: %s", landed, error)
                elif RESTARTING not in str(error) and not is_only_late(error):
                    raise


async def numbers(log: Client, name: str) -> list[int]:
    found: list[int] = []
    with anyio.fail_after(60):
        async for batch in log.read(name, start="all", until="now"):
            found += [int(it.payload.split()[0]) for it in batch.messages]
    return sorted(found)


async def until_done(call: Callable[[], object]) -> None:
    """Until a drop or purge is done: the reserve may be released a moment later."""
    with anyio.fail_after(FREED_S_MAX):
        while True:
            try:
                await call()  # type: ignore[misc]
            except NoSuchCollection:
                return  # an attempt whose answer was lost
            except TidemarkError as error:
                told.info("not yet: %s", error)
                await anyio.sleep(0.2)
            else:
                return


async def until_taken(log: Client, name: str, number: int) -> None:
    began_s = anyio.current_time()
    await put(log, name, number, deadline_s=FREED_S_MAX)
    told.info("appends are taken again after %.1f s", anyio.current_time() - began_s)
