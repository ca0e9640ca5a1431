"""Appending through Milvus's Produce: results, in-stream refusals, and how the stream ends."""

from itertools import pairwise

import anyio
import pytest

from broker.edge.rpc import append_flow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.model.failure import StreamingCode as Code
from schemas.generated.milvus.proto import streaming
from schemas.wire import (
    Closed,
    ProduceAnswer,
    Produced,
    ProduceFailed,
    message,
    produce_request,
    scan_produce_response,
)
from tests.wire.peer import Ended, Peer, PeerStream, append, connected, insert
from tests.wire.small_broker import FIRST_TERM, P0, V0, SmallBroker, small_broker

HALF_CLOSE_REQUEST = b"\x12\x00"


async def answers(stream: PeerStream, count: int) -> list[ProduceAnswer | None]:
    return [scan_produce_response(await stream.receive()) for _ in range(count)]


async def opened(peer: Peer, term: int = FIRST_TERM) -> PeerStream:
    stream = peer.produce(term)
    await stream.receive()
    return stream


async def in_stream_code(peer: Peer, request: bytes) -> tuple[int, Code, str]:
    """The code of one refused request; the stream must still append afterwards."""
    stream = await opened(peer)
    await stream.send(request, append(99))
    first, second = sorted(await answers(stream, 2), key=lambda answer: answer.request_id)  # type: ignore[union-attr]
    assert isinstance(first, ProduceFailed), first
    assert isinstance(second, Produced), second
    return first.request_id, Code(first.code), first.cause


async def test_ids_and_ticks_of_one_stream_only_grow(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(*[append(number) for number in range(1, 201)])
    results = await answers(stream, 200)
    by_request = sorted(results, key=lambda result: result.request_id)  # type: ignore[union-attr]
    assert all(isinstance(result, Produced) for result in results)
    for earlier, later in pairwise(by_request):
        assert isinstance(earlier, Produced)
        assert isinstance(later, Produced)
        assert earlier.request_id + 1 == later.request_id
        assert earlier.message_id < later.message_id
        assert earlier.tick < later.tick
        assert later.last_confirmed_id <= later.message_id


async def test_a_half_close_waits_for_every_result_then_close_then_ok(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(*[append(number) for number in range(1, 51)], HALF_CLOSE_REQUEST)
    await stream.half_close()
    *results, close = await answers(stream, 51)
    assert {result.request_id for result in results} == set(range(1, 51))  # type: ignore[union-attr]
    assert close == Closed()
    assert await stream.status() == (0, None)


async def test_close_alone_ends_nothing(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(HALF_CLOSE_REQUEST, append(1))
    assert isinstance((await answers(stream, 1))[0], Produced)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"_t": "0"}, Code.INVALID_ARGUMENT),
        ({"_t": "903", "_v": "2"}, Code.UNRECOVERABLE),
        ({"_t": "1900", "_v": "2"}, Code.UNRECOVERABLE),
        ({"_t": "700", "_v": "2"}, Code.UNRECOVERABLE),
        ({"_t": "800", "_v": "2"}, Code.UNRECOVERABLE),
        ({"_t": "two"}, Code.INVALID_ARGUMENT),
        ({"_t": ""}, Code.INVALID_ARGUMENT),
        ({"_v": "0"}, Code.INVALID_ARGUMENT),
        ({"_v": "x"}, Code.INVALID_ARGUMENT),
        ({"_t": "1"}, Code.INVALID_ARGUMENT),
        ({"_t": "4", "_v": "2"}, Code.INVALID_ARGUMENT),
        ({"_t": "10", "_v": "2"}, Code.INVALID_ARGUMENT),
        ({"_btt": "-1"}, Code.INVALID_ARGUMENT),
        ({"_vc": "by-dev-rootcoord-dml_7_100v0"}, Code.INVALID_ARGUMENT),
        ({"_t": "901", "_v": "2"}, Code.INVALID_ARGUMENT),
        ({"_t": "902", "_v": "2"}, Code.INVALID_ARGUMENT),
        ({"_t": "999", "_v": "2"}, Code.INVALID_ARGUMENT),
        ({"_tx": "CAEQkE4="}, Code.TRANSACTION_EXPIRED),
        ({"_bh": "CAc="}, Code.UNRECOVERABLE),
        ({"_rh": "CgNzcmM="}, Code.REPLICATE_VIOLATION),
        ({"_rh": "CgNzcmM=", "_t": "900", "_v": "2"}, Code.REPLICATE_VIOLATION),
        (
            {"_rh": "CgNzcmM=", "_t": "900", "_v": "2", "_tx": "CAEQmPj/////////AQ=="},
            Code.REPLICATE_VIOLATION,
        ),
        (
            {"_rh": "CgNzcmM=", "_t": "901", "_v": "2", "_tx": "CAEQmPj/////////AQ=="},
            Code.REPLICATE_VIOLATION,
        ),
    ],
    ids=str,
)
async def test_a_message_that_cannot_be_appended_is_refused_on_its_own(
    peer: Peer, properties: dict[str, str], code: Code
) -> None:
    request_id, found, cause = await in_stream_code(peer, append(7, b"row", **properties))
    assert (request_id, found) == (7, code)
    assert cause


@pytest.mark.parametrize("without", ["_t", "_v"])
async def test_a_message_without_type_or_version_is_refused_on_its_own(
    peer: Peer, without: str
) -> None:
    properties = {"_t": "2", "_v": "1", "_h": "", "_vc": V0}
    del properties[without]
    request = produce_request(3, message(b"row", properties))
    _, code, cause = await in_stream_code(peer, request)
    assert code is Code.INVALID_ARGUMENT
    assert without in cause


async def test_a_foreign_vchannel_is_named_with_the_pchannel_it_does_not_belong_to(
    peer: Peer,
) -> None:
    foreign = "by-dev-rootcoord-dml_7_100v0"
    _, _, cause = await in_stream_code(peer, append(1, _vc=foreign))
    assert foreign in cause
    assert P0 in cause


async def test_any_vchannel_of_the_pchannel_needs_no_creation(peer: Peer) -> None:
    stream = await opened(peer)
    names = (f"{P0}_7v0", f"{P0}_vcchan", P0, "")
    await stream.send(*[append(i, _vc=name) for i, name in enumerate(names)])
    assert all(isinstance(answer, Produced) for answer in await answers(stream, len(names)))


async def test_an_unknown_request_is_ignored(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(b"\x2a\x00", b"", append(1))
    assert isinstance((await answers(stream, 1))[0], Produced)


async def test_bytes_that_are_no_request_end_the_stream_after_what_came_before(
    peer: Peer,
) -> None:
    stream = await opened(peer)
    await stream.send(append(1))
    assert isinstance((await answers(stream, 1))[0], Produced)
    await stream.send(b"\x0a\xff")
    assert await answers(stream, 1) == [Closed()]
    code, error = await stream.status()
    assert error is not None
    assert (code, error.code) == (3, Code.INVALID_ARGUMENT)


async def test_a_message_over_the_limit_is_unrecoverable_for_its_request_alone() -> None:
    limits = EdgeLimits(message_bytes_max=10_000, frame_bytes_max=20_000)
    async with small_broker(limits=limits) as broker, connected(broker) as peer:
        _, code, cause = await in_stream_code(peer, append(1, b"x" * 10_001))
        assert code is Code.UNRECOVERABLE
        assert "10000" in cause


async def test_a_frame_over_the_limit_is_unrecoverable_for_its_request_alone() -> None:
    limits = EdgeLimits(message_bytes_max=10_000, frame_bytes_max=20_000)
    async with small_broker(limits=limits) as broker, connected(broker) as peer:
        stream = await opened(peer)
        await stream.send(append(1), append(2, b"x" * 3_000_000), append(3))
        found = {
            it.request_id: it
            for it in await answers(stream, 3)
            if isinstance(it, Produced | ProduceFailed)
        }
        assert isinstance(found[1], Produced)
        assert isinstance(found[3], Produced)
        refused = found[2]
        assert isinstance(refused, ProduceFailed)
        assert refused.code == Code.UNRECOVERABLE
        assert "20000" in refused.cause


async def test_a_message_with_very_many_properties_is_refused_alone(peer: Peer) -> None:
    many = {"_t": "2", "_v": "1", "_vc": V0} | {f"k{number}": "" for number in range(1100)}
    request_id, code, cause = await in_stream_code(peer, produce_request(7, message(b"x", many)))
    assert (request_id, code) == (7, Code.INVALID_ARGUMENT)
    assert cause == "a message of more than 1024 properties"


async def test_a_frame_too_large_to_be_passed_over_ends_the_stream_as_unrecoverable() -> None:
    limits = EdgeLimits(
        message_bytes_max=10_000, frame_bytes_max=20_000, passed_over_bytes_max=30_000
    )
    async with small_broker(limits=limits) as broker, connected(broker) as peer:
        stream = await opened(peer)
        await stream.send(append(1))
        assert isinstance((await answers(stream, 1))[0], Produced)
        with anyio.move_on_after(60):
            await stream.call.write(append(2, b"x" * 30_001))
        assert await answers(stream, 1) == [Closed()]
        code, error = await stream.status()
        assert error is not None
        assert (code, error.code) == (9, Code.UNRECOVERABLE)
        again = await opened(peer)
        await again.send(append(1))
        assert isinstance((await answers(again, 1))[0], Produced)


async def test_a_stream_that_must_not_hold_more_is_read_again_when_results_are_read() -> None:
    limits = EdgeLimits(produce_inflight_bytes_max=4_096)
    async with small_broker(limits=limits) as broker, connected(broker) as peer:
        stream = await opened(peer)
        async with anyio.create_task_group() as tasks:
            requests = [append(number, b"x" * 1000) for number in range(400)]
            tasks.start_soon(stream.send, *requests)
            found = await answers(stream, 400)
        assert {answer.request_id for answer in found} == set(range(400))  # type: ignore[union-attr]


async def test_killing_the_appender_ends_the_stream_and_the_next_term_serves(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine a stream may end before it appends again.
    for term, grace_s in enumerate((0.5, 4.0, 16.0), FIRST_TERM):
        monkeypatch.setattr(append_flow, "LEFT_GRACE_S", grace_s)
        stream = await _opened_when_served(peer, term)
        await stream.send(append(1))
        assert isinstance((await answers(stream, 1))[0], Produced)
        broker.system.kill(broker.channel_path(P0, "appender"))
        await stream.send(append(2))
        (refused,) = await answers(stream, 1)
        if refused != Closed():
            break
    assert isinstance(refused, ProduceFailed)
    assert Code(refused.code) in (Code.UNKNOWN, Code.ON_SHUTDOWN)
    assert await answers(stream, 1) == [Closed()]
    code, error = await stream.status()
    assert error is not None
    assert (code, error.code) == (9, Code.ON_SHUTDOWN)
    again = await _opened_when_served(peer, term + 1)
    await again.send(append(1))
    assert isinstance((await answers(again, 1))[0], Produced)


async def test_a_stream_that_says_nothing_is_told_when_its_channel_leaves(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    broker.system.kill(broker.channel_path(P0, "appender"))
    with anyio.fail_after(60):
        assert await answers(stream, 1) == [Closed()]
        code, error = await stream.status()
    assert error is not None
    assert (code, error.code) == (9, Code.ON_SHUTDOWN)


async def test_stopping_the_server_answers_what_is_in_flight_then_says_shutdown(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await stream.send(*[append(number) for number in range(1, 11)])
    first = await answers(stream, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: broker.edge.stop(deadline_s=60.0))
        rest: list[ProduceAnswer | None] = []
        while not rest or rest[-1] != Closed():
            rest += await answers(stream, 1)
        code, error = await stream.status()
    assert error is not None
    assert (code, error.code) == (9, Code.ON_SHUTDOWN)
    assert all(isinstance(answer, Produced) for answer in first + rest[:-1])


async def test_what_was_accepted_is_appended_though_the_client_went_away(
    broker: SmallBroker, peer: Peer
) -> None:
    async with connected(broker) as other:
        stream = await opened(other)
        await stream.send(append(1, b"last words"))
        await answers(stream, 1)
        await stream.send(append(2, b"very last words"))
        stream.call.cancel()
    stream = await opened(peer)
    await stream.send(append(1))
    result = (await answers(stream, 1))[0]
    assert isinstance(result, Produced)


async def test_the_answer_to_a_manual_flush_lists_no_segments(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(append(5, b"", _t="9", _v="2"))
    answer = await stream.receive()
    landed = scan_produce_response(answer)
    assert isinstance(landed, Produced)
    response = streaming.ProduceResponse.parse(answer).produce
    assert response is not None
    assert response.result is not None
    assert response.result.extra is not None
    assert response.result.extra.type_url.endswith(
        "/milvus.proto.messages.ManualFlushExtraResponse"
    )
    assert (landed.request_id, landed.tick) == (5, response.result.timetick)


async def test_keys_of_the_user_and_payload_come_back_verbatim(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(produce_request(1, insert(b"\x00\xff", mine="ä", empty="")))
    assert isinstance((await answers(stream, 1))[0], Produced)


async def _opened_when_served(peer: Peer, term: int) -> PeerStream:
    with anyio.fail_after(60):
        while True:
            try:
                return await opened(peer, term)
            except Ended:
                await anyio.lowlevel.checkpoint()
