"""The counted collection: what holds its segments back, and what the judge says of them."""

from pathlib import Path

import anyio

from broker.client import connect
from tests.chaos.storm.counted import create_counted, flush_all, unflushed
from tests.chaos.storm.history import History
from tests.chaos.storm.patience import patient
from tests.local_broker import local_broker

IDLE_MS = 3000


async def test_a_stage_that_nobody_ends_holds_its_segment_until_it_expires(
    tmp_path: Path,
) -> None:
    history = History()
    async with (
        local_broker(tmp_path, pchannels=1, stage_idle_ms=IDLE_MS) as broker,
        connect(broker.address) as log,
    ):
        counted = await create_counted(log, shards=1)
        (vchannel,) = counted.vchannels
        await log.append(vchannel, b"first")
        stage = log.stage("app", 1, 0)
        await stage.append(vchannel, b"second")
        await stage.seal()
        with patient() as patience:
            await flush_all(log, counted, history, patience)
        assert not patience.ran_out, await unflushed(log, counted)
    assert [it.rows for it in history.listed] == [1]


async def test_the_judge_names_the_segments_that_are_not_flushed(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        counted = await create_counted(log, shards=1)
        (vchannel,) = counted.vchannels
        stage = log.stage("app", 1, 0)
        await stage.append(vchannel, b"first")
        await stage.seal()
        # By the default it expires in ten minutes.
        wanted = f"on {vchannel} is ", "1 wait for their Flush, 1 transactions are open"
        with patient() as patience:
            text = ""
            while not all(it in text for it in wanted):
                text = await unflushed(log, counted)
                await anyio.sleep(0.05)
        assert not patience.ran_out, text
