"""What went through each vchannel, counted by the processes that served it."""

from pathlib import Path

from broker.client import Message, connect
from tests.broker_process import BrokerProcess


async def test_each_vchannel_counts_what_was_appended_and_read_wherever_it_is_served(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path, nodes="2", pchannels="2") as broker:
        async with connect(broker.address) as log:
            busy = (await log.collections.create("busy", shards=2)).vchannels
            (idle,) = (await log.collections.create("idle", shards=1)).vchannels
            for shard, count in zip(busy, (30, 12), strict=True):
                await log.append_messages(shard, [Message(b"x" * 100)] * count)
            async with log.txn(busy[1]) as txn:
                await txn.append(b"y" * 50)
            for _ in range(2):
                async for _batch in log.read(busy[0], start="all", until="now"):
                    pass
            servers = await log.admin.traffic()
    assert len({it.process for it in servers}) == 3  # the coordinator counts nothing
    found = {it.vchannel: it for server in servers for it in server.vchannels}
    assert idle not in found
    assert [found[it].messages for it in busy] == [30, 13]  # without begin and commit
    assert 3000 <= found[busy[0]].bytes < 3000 + 30 * 100
    assert [found[it].delivered for it in busy] == [60, 0]
    assert found[busy[0]].delivered_bytes >= 6000
