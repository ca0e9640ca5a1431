"""Purges by a client: what it may ask for, and what it is told."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.client import Client, InvalidArgument, NoSuchCollection, connect
from broker.client.errors import BadTarget, ResourceAcquired
from tests.local_broker import local_broker


async def payloads(log: Client, name: str) -> list[bytes]:
    return sorted([it.payload async for it in log.read(name, until="now").messages()])


async def test_a_collection_is_purged_on_all_its_vchannels_up_to_a_tick(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("trains", shards=3)
        for number in range(30):
            await log.append("trains", b"old", key=b"%d" % number)
        cut = await log.cut("trains")
        await log.append("trains", b"new", key=b"1")
        done = await log.purge("trains", upto=cut.tick)
        assert len(done) == 3
        assert {it.upto for it in done} == {cut.tick}
        assert await payloads(log, "trains") == [b"new"]
        assert await log.purge("trains", upto=cut.tick) == done, "again"


async def test_a_collection_of_one_shard_is_purged_before_an_id_or_a_time(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("trains", database="")
        landed = [await log.append("trains", b"%d" % it) for it in range(4)]
        [done] = await log.purge("trains", before_id=landed[2].id)
        assert done.upto < landed[2].tick
        assert await payloads(log, "trains") == [b"2", b"3"]
        [done] = await log.purge(landed[0].vchannel, before_id=landed[3].id)
        assert await payloads(log, "trains") == [b"3"]
        long_ago = datetime(2001, 1, 1, tzinfo=UTC)
        assert await log.purge("trains", upto=long_ago) == [done]


async def test_what_cannot_be_purged_is_refused_and_nothing_is_gone(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("trains", shards=2)
        landed = await log.append("trains", b"kept", key=b"1")
        for wrong in ({}, {"upto": 1, "before_id": 1}, {"before_id": 5}, {"upto": -1}):
            with pytest.raises(BadTarget):
                await log.purge("trains", **wrong)  # type: ignore[arg-type]
        with pytest.raises(NoSuchCollection):
            await log.purge("cars", upto=1)
        with pytest.raises(InvalidArgument, match="not closed yet"):
            await log.purge("trains", upto=1 << 62)
        with pytest.raises(InvalidArgument, match="ids begin at 1"):
            await log.purge(landed.vchannel, before_id=0)
        with pytest.raises(InvalidArgument, match="not written yet"):
            await log.purge(landed.vchannel, before_id=10**9)
        await log.group("slow").create("trains")
        cut = await log.cut("trains")
        with pytest.raises(ResourceAcquired, match=r"group 'slow on .*' still needs"):
            await log.purge("trains", upto=cut.tick)
        assert await payloads(log, "trains") == [b"kept"]
        await log.group("slow").drop("trains")
        await log.purge("trains", upto=cut.tick)
        assert await payloads(log, "trains") == []
