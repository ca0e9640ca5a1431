"""One request, one answer, and a deadline."""

import anyio
import pytest

from broker.transport import ServerBatchStream, unary_call
from schemas.generated.tidemark import v1
from tests.broker.transport.echo import CALL, serving

REQUEST = v1.GetCollectionRequest(name="trains")


async def test_a_call_brings_the_answer() -> None:
    async with serving() as (_, channel):
        answer = await unary_call(
            channel, CALL, REQUEST, v1.GetCollectionRequest, metadata={}, deadline_s=5.0
        )
        assert answer == REQUEST


async def test_without_an_answer_it_ends_at_its_deadline() -> None:
    async def silent(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        await anyio.sleep_forever()

    async with serving(silent) as (_, channel):
        with pytest.raises(TimeoutError):
            await unary_call(
                channel, CALL, REQUEST, v1.GetCollectionRequest, metadata={}, deadline_s=0.05
            )
