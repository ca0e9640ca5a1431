"""tidemark.v1.Log/Measure as any gRPC client sees it: steps, codes, answers that end early."""

from collections.abc import Sequence
from itertools import pairwise

import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.peer import Peer, append, ended
from tests.wire.small_broker import P0, V0

MEASURE = "/tidemark.v1.Log/Measure"
CUT = "/tidemark.v1.TimeSync/Cut"
MESSAGES = 40


async def closed_tick(peer: Peer) -> int:
    answer = await peer.call(CUT, bytes(v1.CutRequest(channels=[V0])))
    return v1.CutResponse.parse(answer).time_tick


async def appended(peer: Peer) -> int:
    """The first tick."""
    before = await closed_tick(peer)
    stream = peer.produce()
    await stream.receive()
    for number in range(MESSAGES):
        await stream.send(append(number + 1))
        await stream.receive()
    return before


def question(channels: Sequence[str], after: int, until: int, **more: int) -> v1.MeasureRequest:
    return v1.MeasureRequest(
        channels=list(channels),
        after_ticks=[after],
        until_tick=until,
        **more,  # type: ignore[arg-type]
    )


async def measured(peer: Peer, request: v1.MeasureRequest) -> v1.MeasureResponse:
    return v1.MeasureResponse.parse(await peer.call(MEASURE, bytes(request)))


async def test_every_channel_is_told_in_the_order_asked_in_steps_as_fine_as_wanted(
    peer: Peer,
) -> None:
    after = await appended(peer)
    until = await closed_tick(peer)
    for step_rows, steps in ((1, MESSAGES), (15, 3), (0, 1)):
        request = question([P0, V0, f"{P0}_8v0"], after, until, step_rows=step_rows)
        found = await measured(peer, request)
        assert [it.channel for it in found.channels] == request.channels
        whole, shard, other = found.channels
        assert {it.exact_tick for it in found.channels} == {until}
        assert shard.rows[-1] == MESSAGES
        assert whole.rows[-1] >= MESSAGES
        assert len(shard.ticks) == steps
        assert other.ticks == []
        assert all(a < b for a, b in pairwise([after, *shard.first_ticks]))
        assert shard.bytes == sorted(shard.bytes)
        assert found.copies == []


async def test_an_answer_that_ends_early_says_where_and_the_rest_is_told_from_there(
    peer: Peer,
) -> None:
    after = await appended(peer)
    until = await closed_tick(peer)
    (all_rows,) = (await measured(peer, question([V0], after, until))).channels
    rows = 0
    while after < until:
        request = question([V0], after, until, rows_max=9, step_rows=3)
        (found,) = (await measured(peer, request)).channels
        assert after < found.exact_tick <= until
        rows += found.rows[-1] if found.rows else 0
        after = found.exact_tick
    assert rows == all_rows.rows[-1] == MESSAGES


async def test_bad_questions_have_a_code(peer: Peer) -> None:
    until = await closed_tick(peer)
    bad: list[tuple[object, Code]] = [
        (question([], 0, until), Code.INVALID_ARGUMENT),
        (question([""], 0, until), Code.INVALID_ARGUMENT),
        (question([V0, V0], 0, until), Code.INVALID_ARGUMENT),
        (question([V0] * 5000, 0, until), Code.INVALID_ARGUMENT),
        (question([V0], until, until), Code.INVALID_ARGUMENT),
        (question([V0], 0, 0), Code.INVALID_ARGUMENT),
        (question([V0], 0, (1 << 64) - 1), Code.INVALID_ARGUMENT),
        (question([V0, "by-dev-rootcoord-dml_7_1v0"], 0, until), Code.CHANNEL_NOT_EXIST),
        (v1.MeasureRequest(channels=[V0], until_tick=until), Code.INVALID_ARGUMENT),
        (
            v1.MeasureRequest(channels=[V0, P0], after_ticks=[0, 1], until_tick=until),
            Code.INVALID_ARGUMENT,
        ),
        (
            v1.MeasureRequest(channels=[V0], after_ticks=[0, 1], until_tick=until),
            Code.INVALID_ARGUMENT,
        ),
        (b"\xff\xff\xff", Code.INVALID_ARGUMENT),
    ]
    for request, code in bad:
        data = request if isinstance(request, bytes) else bytes(request)  # type: ignore[call-overload]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.call(MEASURE, data)
        error = ended(caught.value).error
        assert error is not None
        assert Code(error.code) is code, request
