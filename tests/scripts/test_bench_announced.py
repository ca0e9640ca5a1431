"""The benchmark of announced collections, on a real broker."""

from pathlib import Path

from benchmark.measures.announced import ANNOUNCED, PLAIN, Announced
from benchmark.results.figures import RATE
from served_broker import served_broker

from broker.client import connect
from broker.model.message import MessageType


async def test_batches_of_the_announced_collection_are_placed_in_segments(tmp_path: Path) -> None:
    with served_broker(tmp_path / "data") as broker:
        appends = Announced(broker.address)
        for announced in (False, True, False, True):
            found = await appends.append(4_000, announced=announced)
            assert found[RATE] > 0
        async with connect(broker.address) as log:
            for vchannel, segments in ((PLAIN, False), (ANNOUNCED, True)):
                kinds = [MessageType.CREATE_SEGMENT, MessageType.INSERT]
                seen = [
                    it.type async for it in log.read(vchannel, until="now", types=kinds).messages()
                ]
                assert seen.count(MessageType.INSERT) == 3 * 4_000
                assert (MessageType.CREATE_SEGMENT in seen) is segments
