"""Compaction by key on real brokers: space comes back, and kill -9 amid passes loses no key."""

import random
from pathlib import Path

import anyio

from broker.client import Client, Message, connect
from tests.broker_process import BrokerProcess
from tests.chaos.test_space import stored_bytes, until_below

TEST_S_MAX = 300.0
SETTINGS = {
    "pchannels": "2",
    "segment_bytes": str(1 << 20),
    "retention_check_s": "0.2",
    "snapshot_period_s": "0.5",
    "compaction_min_bytes": "65536",
}
KEYS, PAYLOAD = 50, b"." * 400


async def update(log: Client, table: dict[bytes, bytes], turn: int, chance: random.Random) -> None:
    """Some new values, in batches and in a staged batch, and some deletions."""
    for _ in range(20):
        keys = [b"%d" % chance.randrange(KEYS) for _ in range(20)]
        rows = [(key, b"" if chance.random() < 0.1 else b"%d " % turn + PAYLOAD) for key in keys]
        messages = [Message(payload, key=key) for key, payload in rows]
        if chance.random() < 0.2:
            async with log.staged() as batch:
                await batch.append_messages("table", messages)
        else:
            await log.append_messages("table", messages)
        for key, payload in rows:
            if payload:
                table[key] = payload
            else:
                table.pop(key, None)


async def read_table(log: Client) -> tuple[dict[bytes, bytes], int]:
    """What a new reader makes of the collection, and how many messages it got."""
    table: dict[bytes, bytes] = {}
    count = 0
    newest: dict[str, int] = {}
    async for batch in log.read("table", start="all", until="now"):
        for it in batch.messages:
            assert it.key is not None
            assert it.tick >= newest.get(it.vchannel, 0), "ticks go forward"
            newest[it.vchannel] = it.tick
            count += 1
            if it.payload:
                table[it.key] = it.payload
            else:
                table.pop(it.key, None)
    return table, count


async def test_kill_nine_amid_passes_loses_no_newest_value(tmp_path: Path, rounds: int) -> None:
    chance, data = random.Random(rounds), tmp_path / "data"
    table: dict[bytes, bytes] = {}
    broker = BrokerProcess(data, **SETTINGS)
    amid = False
    try:
        async with connect(broker.address) as log:
            await log.collections.create("table", shards=2, cleanup="compact", tombstone_ms=1000)
        for turn in range(4 + rounds):
            async with connect(broker.address) as log:
                await update(log, table, turn, chance)
                found, _ = await read_table(log)
                assert found == table, turn
            await anyio.sleep(chance.random())
            broker.kill()
            names = [it.name for it in (data / "wal").glob("*/*")]
            amid = amid or any(it.count("-") > 1 for it in names)
            broker = BrokerProcess(data, **SETTINGS)
        async with connect(broker.address) as log:
            found, _ = await read_table(log)
            assert found == table
            assert amid, "no segment was ever rewritten: the test shows nothing"
    finally:
        broker.kill()


async def test_updates_of_few_keys_take_little_space(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("table", shards=2, cleanup="compact")
            for turn in range(100):
                rows = [Message(b"%d " % turn + PAYLOAD, key=b"%d" % it) for it in range(KEYS)]
                await log.append_messages("table", rows)
            before = stored_bytes(data)
            await until_below(data, before / 3)
            found, _ = await read_table(log)
            assert found == {b"%d" % it: b"99 " + PAYLOAD for it in range(KEYS)}
            altered = await log.collections.alter("table", cleanup="delete")
            assert altered.compaction is None
            assert (await log.collections.get("table")).compaction is None
        assert broker.terminate() == 0
    with BrokerProcess(data, **SETTINGS) as broker:
        async with connect(broker.address) as log:
            again, count = await read_table(log)
            assert again == found
            assert count < 100 * KEYS / 2, "read from the disk, not from memory"
