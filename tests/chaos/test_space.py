"""Space of dropped collections comes back, and kill -9 in the middle of it loses nothing."""

import random
from pathlib import Path

import anyio
import pytest

from broker.client import Client, InvalidArgument, Message, Unrecoverable, connect
from broker.client.errors import ResourceAcquired
from tests.broker_process import BrokerProcess

TEST_S_MAX = 300.0
BACK_S_MAX = 60.0
LIVES_MAX = 20
"""Each adds data that all later ones read back."""
SETTINGS = {"pchannels": "2", "segment_bytes": str(1 << 20), "retention_check_s": "0.2"}
MESSAGES, PAYLOAD = 40, b"." * 8000


async def fill(log: Client, name: str, number: int) -> None:
    messages = [Message(b"%d " % number + PAYLOAD, key=b"%d" % it) for it in range(MESSAGES)]
    await log.append_messages(name, messages)


async def numbers_of(log: Client, name: str) -> list[int]:
    """What a collection holds, by the number in each message."""
    found: list[int] = []
    async for batch in log.read(name, start="all", until="now"):
        found += [int(it.payload.split()[0]) for it in batch.messages]
    return sorted(found)


def stored_bytes(data: Path) -> int:
    """What the log files hold; those that are preallocated count as far as they are written."""
    found = 0
    for path in (data / "wal").glob("*/*.log"):
        try:
            found += len(path.read_bytes().rstrip(b"\0"))
        except FileNotFoundError:
            continue  # it was given back meanwhile
    return found


async def until_below(data: Path, bytes_max: float) -> None:
    with anyio.fail_after(BACK_S_MAX):
        while True:
            if await anyio.to_thread.run_sync(stored_bytes, data) <= bytes_max:
                return
            await anyio.sleep(0.2)


async def test_dropping_nine_of_ten_collections_gives_their_bytes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            for number in range(10):
                await log.collections.create(f"c{number}", shards=2)
            for turn in range(6):
                for number in range(10):
                    await fill(log, f"c{number}", turn)
            before = stored_bytes(data)
            for number in range(9):
                await log.collections.drop(f"c{number}")
            await until_below(data, before * (1 - 0.9 * 0.85))
            assert await numbers_of(log, "c9") == sorted(list(range(6)) * MESSAGES)
        assert broker.terminate() == 0
    with BrokerProcess(data, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            assert await numbers_of(log, "c9") == sorted(list(range(6)) * MESSAGES)


async def test_kill_nine_while_segments_are_rewritten_loses_nothing(
    tmp_path: Path, rounds: int
) -> None:
    chance, data = random.Random(rounds), tmp_path / "data"
    broker = BrokerProcess(data, **SETTINGS)
    written: list[int] = []
    amid = 0
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with connect(broker.address) as log:
                await log.collections.create("kept", shards=2)
            for life in range(min(rounds, LIVES_MAX)):
                async with connect(broker.address) as log:
                    await log.collections.create(f"gone{life}", shards=2)
                    for turn in range(8):
                        await fill(log, "kept", life * 100 + turn)
                        written += [life * 100 + turn] * MESSAGES
                        await fill(log, f"gone{life}", turn)
                    await log.collections.drop(f"gone{life}")
                amid += await until_rewriting(data, chance)
                broker.kill()
                broker = BrokerProcess(data, **SETTINGS)
                async with connect(broker.address) as log:
                    assert await numbers_of(log, "kept") == sorted(written)
            async with connect(broker.address) as log:
                kept = len(written) * len(PAYLOAD)
                await until_below(data, 1.3 * kept + (1 << 20))
                assert await numbers_of(log, "kept") == sorted(written)
    finally:
        broker.kill()
    assert amid, "no kill fell into a rewriting"


async def until_rewriting(data: Path, chance: random.Random) -> bool:
    """Until a segment is being rewritten, and a little longer; False if none was seen."""
    with anyio.move_on_after(15):
        while True:
            for path in (data / "wal").glob("*/*.new"):
                if path.name.count("-") == 3:
                    await anyio.sleep(chance.random() * 0.05)
                    return True
            await anyio.sleep(0.001)
    return False


async def test_a_purge_gives_its_bytes_back_and_survives_kill_nine(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data, **SETTINGS)
    try:
        async with connect(broker.address) as log:
            for name in ("purged", "kept"):
                await log.collections.create(name, shards=2)
            for turn in range(12):
                await fill(log, "purged", turn)
                if turn < 2:
                    await fill(log, "kept", turn)
            before = stored_bytes(data)
            cut = await log.cut("purged")
            await fill(log, "purged", 100)
            with pytest.raises(InvalidArgument, match="is not closed yet"):
                await log.purge("purged", upto=1 << 62)
            vchannel = (await log.collections.get("purged")).vchannels[0]
            async with log.txn(vchannel) as txn:
                await txn.append(b"101 ")
                later = await log.cut("purged")
                with pytest.raises(ResourceAcquired, match="is open on"):
                    await log.purge("purged", upto=later.tick)
            done = await log.purge("purged", upto=cut.tick)
            assert {it.upto for it in done} == {cut.tick}
            left = [100] * MESSAGES + [101]
            assert await numbers_of(log, "purged") == left
            measured = await log.measure("purged", after=0, until=cut.tick)
            assert measured.choice.rows == 0, "what is purged is not counted"
            with pytest.raises(Unrecoverable, match="removed by a purge"):
                async for _ in log.read(vchannel, start=("tick", 2), until="now"):
                    pass
        broker.kill()
        broker = BrokerProcess(data, **SETTINGS)
        async with connect(broker.address) as log:
            assert await numbers_of(log, "purged") == left
            await until_below(data, 0.4 * before)
            assert await numbers_of(log, "purged") == left
            assert await numbers_of(log, "kept") == sorted([0, 1] * MESSAGES)
        assert broker.terminate() == 0
    finally:
        broker.kill()
