"""A reader of batches over streams that break between any two answers, beside a naive model."""

from collections.abc import Iterator
from dataclasses import astuple

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.read.batch_subscription import BatchRange, BatchSubscription, Begin, Only
from broker.model.ids import PChannelName
from schemas.batches import Position, ReadAnswer, ReadBatch


def test_a_new_stream_says_what_the_last_one_said_of_the_place() -> None:
    reader = BatchSubscription(BatchRange(PChannelName("p"), ("v",), Begin(), Only()))
    at = Position(7, 5, 3, 2, 4)
    reader._news(ReadAnswer(None, 5, at, False))
    opening = reader._request().open
    assert opening is not None
    assert opening.position is not None
    assert Position(*astuple(opening.position)) == at


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=8)
"""How many messages each batch of the log has; the ids and ticks of all of them are 1, 2, ..."""
STREAMS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=8)
"""Of each stream: so many batches are delivered together, and so many answers arrive."""


def answers(sizes: list[int], together: int, begin: int) -> Iterator[ReadAnswer]:
    """From behind message `begin` on: the last answer of a delivery says where the reader is."""
    batches, at = list[ReadBatch](), 1
    for size in sizes:
        first = max(0, begin + 1 - at)
        if first < size:
            batch = ReadBatch(
                vchannel="v", sizes=(1,) * size, message_id=at, tick=at, first=first, end=size,
                body=b"x" * size,
            )  # fmt: skip
            batches.append(batch)
        at += size
    for number, batch in enumerate(batches):
        last = batch.tick + batch.end - 1
        if (number + 1) % together == 0 or number + 1 == len(batches):
            yield ReadAnswer(batch, last, Position(last + 1, last, 0, 0), False)
        else:
            yield ReadAnswer(batch, 0, None, False)


@settings(deadline=None)  # each case has a loop of its own, whose clock the reader looks at
@given(SIZES, STREAMS)
def test_each_message_comes_once_and_no_tick_is_closed_before_its_message(
    sizes: list[int], streams: list[tuple[int, int]]
) -> None:
    async def scenario() -> None:
        wanted = BatchRange(PChannelName("p"), ("v",), Begin(), Only())
        reader = BatchSubscription(wanted)
        ticks, begin = list[int](), 0
        for together, arrive in [*streams, (1, len(sizes))]:
            for _, answer in zip(range(arrive), answers(sizes, together, begin), strict=False):
                for batch in reader._news(answer):
                    ticks += batch.ticks
                    assert batch.closed_tick <= (ticks[-1] if ticks else 0)
                if answer.position is not None:
                    begin = answer.position.tick
        assert ticks == [*range(1, sum(sizes) + 1)]

    anyio.run(scenario)
