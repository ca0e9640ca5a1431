"""A read that breaks continues where it was: no row twice, and no span sent again."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from broker.client import Client, ConnectionLost
from broker.spark.gateway import AnyScanner, Gateway
from broker.spark.source.batch_reader import BatchReader
from broker.spark.source.reading import SpanPartition, SpanReader
from broker.spark.source.source_options import parse
from broker.spark.source.subscribed import Subscribed, declared
from tests.broker.spark.source import test_stream_reader
from tests.broker.spark.source.test_stream_reader import World

world = test_stream_reader.world
MESSAGES = 40
BREAK_AFTER = 30
BODY_BYTES = 50_000


async def append(vchannel: str, number: int, log: Client) -> None:
    await log.append(vchannel, b"%03d" % number + bytes(BODY_BYTES))


class Breaking(Gateway):
    """A gateway whose first read ends after some batches, as when its stream broke."""

    broken = False

    def read(self, open: Callable[[Client], AnyScanner]) -> Iterator[Any]:
        for number, batch in enumerate(super().read(open)):
            if number == BREAK_AFTER and not self.broken:
                self.broken = True
                raise ConnectionLost("the stream broke")
            yield batch


def test_a_read_that_breaks_resumes_behind_the_last_row(world: World) -> None:
    name = world.make("breaks", schema=None)
    (vchannel, *_) = world.do(lambda log: log.collections.get(name)).vchannels
    for number in range(MESSAGES):
        world.do(partial(append, vchannel, number))
    given = {"server": world.address, "subscribe": name, "columns": "value"}
    parsed = parse(given, streaming=False)
    (partition,) = BatchReader(Subscribed(parsed, declared(parsed))).partitions()
    assert isinstance(partition, SpanPartition)

    def read(gateway: Gateway) -> tuple[list[int], int]:
        before = world.sent()
        batches = SpanReader(partition, gateway).batches()
        numbers = [int(it.as_py()[:3]) for rows in batches for it in rows.column("value")]
        gateway.close()
        return numbers, world.sent() - before

    whole, once = read(Gateway(partition.server))
    breaking = Breaking(partition.server)
    resumed, both = read(breaking)
    assert breaking.broken
    assert whole == resumed == list(range(MESSAGES))
    # The broken stream may have sent everything before it was closed; the next one sends the rest.
    assert both < 1.5 * once
