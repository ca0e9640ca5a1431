"""The measure of message streams: each subject handles its rows and messages, on a small broker."""

from pathlib import Path

import uvloop
from benchmark import names
from benchmark.measures import streams
from benchmark.measures.streams import StreamLoad, Streams
from benchmark.results.figures import RATE
from served_broker import served_broker

from broker.client import connect


def test_every_subject_has_a_rate_and_the_collections_are_gone_again(tmp_path: Path) -> None:
    with served_broker(tmp_path, "--pchannels", "4") as broker:
        found = Streams(broker.address, 4_000).measure()
        again = Streams(broker.address, 4_000).measure()
    assert (
        set(found)
        == set(again)
        == {
            names.ARROW_READS,
            names.ARROW_PACKS,
            names.BODY_APPENDS,
            names.BODY_PACKS,
        }
    )
    assert all(it[RATE] > 0 for it in found.values())


def test_both_readers_see_all_rows_and_both_writers_send_as_much(tmp_path: Path) -> None:
    async def handled(address: str) -> list[int]:
        async with connect(address) as log:
            load = StreamLoad(log, 12)
            await load.prepare()
            runs = (load.read_arrow, load.read_packs, load.append_batch, load.produce)
            counts = [await run() for run in runs]
            stored = [len(it) async for it in log.read_batches(streams.BODIES, until="now")]
            return [*counts, sum(stored)]

    with served_broker(tmp_path, "--pchannels", "4") as broker:
        assert uvloop.run(handled(broker.address)) == [48_000, 48_000, 4_000, 4_000, 8_000]
