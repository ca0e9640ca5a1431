"""Retention under a reader: the reader is told what it has missed, and where the log begins now."""

from pathlib import Path

import anyio
import pytest

from broker.app import Broker
from broker.client import Client, OutOfRange, Scanner, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from broker.node.truncation import TruncateLogs
from tests.local_broker import local_broker

MIB = 1024 * 1024
(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")
SETTINGS = {
    "pchannels": 1,
    "segment_bytes": MIB,
    "retention_bytes": 2 * MIB,
    "hold_bytes_max": 0,
    "tail_bytes_max": 64 * 1024,
    "consume_credit_bytes": 64 * 1024,
    "snapshot_period_s": 0.1,
}
MESSAGE_BYTES = 32 * 1024
MESSAGES = 400
"""More than 12 MiB: most of it is removed, and it is more than a stopped reader's windows hold."""

DEADLINE_S = 60.0


async def test_a_reader_that_stopped_is_told_the_range_it_missed(tmp_path: Path) -> None:
    async with local_broker(tmp_path, **SETTINGS) as broker, connect(broker.address) as log:
        await write(log)
        async with log.read(VCHANNEL) as reader:
            seen = [int(message.id) for message in (await anext(reader)).messages]
            first_id = await truncate(broker, log)
            assert seen[-1] < first_id
            with pytest.raises(OutOfRange) as caught:
                await read_on(reader, seen)
        error = caught.value
        assert seen == sorted(set(seen))
        assert error.requested_id == seen[-1] + 1
        assert error.first_id == first_id
        assert f"[{error.requested_id}, {first_id}) was removed" in str(error)


async def test_a_range_that_was_removed_is_refused_at_the_first_step(tmp_path: Path) -> None:
    async with local_broker(tmp_path, **SETTINGS) as broker, connect(broker.address) as log:
        await write(log)
        first_id = await truncate(broker, log)
        with pytest.raises(OutOfRange, match=rf"holds \[{first_id}, "):
            await anext(log.read_range(VCHANNEL, 2, first_id + 1))
        with pytest.raises(OutOfRange, match=r"\[2, \d+\) was removed"):
            await anext(log.read(VCHANNEL, start=2))


async def test_whoever_wants_all_gets_what_is_left_and_the_size_is_near_the_limit(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, **SETTINGS) as broker, connect(broker.address) as log:
        await write(log)
        first_id = await truncate(broker, log)
        whole = log.read(VCHANNEL, until="now")
        found = [message.id async for message in whole.messages()]
        assert found[0] >= first_id
        assert found == sorted(set(found))
        # As far as the newest snapshot lets it; on a busy machine that comes later.
        with anyio.fail_after(DEADLINE_S):
            while bytes_on_disk(tmp_path) >= SETTINGS["retention_bytes"] + 3 * MIB:
                await truncate_once(broker, log)


async def write(log: Client) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as appends:
            for _ in range(MESSAGES):
                appends.start_soon(log.append, VCHANNEL, bytes(MESSAGE_BYTES))


async def truncate(broker: Broker, log: Client) -> int:
    """Have retention applied as soon as a snapshot lets it; the first id that is left."""
    with anyio.fail_after(DEADLINE_S):
        first_id = 1
        while first_id <= MESSAGES // 2:
            first_id = await truncate_once(broker, log)
    return first_id


async def truncate_once(broker: Broker, log: Client) -> int:
    """Have retention applied now; the first id that is left."""
    truncation = broker.system.find("/root/node/truncation")
    await truncation.ask(TruncateLogs(), deadline_s=DEADLINE_S)
    await log.append(VCHANNEL, b"behind it")
    return int((await log.offsets.describe([VCHANNEL]))[VCHANNEL].first_id)


def bytes_on_disk(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*.log"))


async def read_on(reader: Scanner, seen: list[int]) -> None:
    with anyio.fail_after(DEADLINE_S):
        async for batch in reader:
            seen += [message.id for message in batch.messages]
