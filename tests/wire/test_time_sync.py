"""tidemark.v1.TimeSync as any gRPC client sees it: answers, codes, and streams that end."""

import anyio
import anyio.lowlevel
import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.peer import ANSWER_S, Peer, PeerStream, append, ended
from tests.wire.small_broker import P0, V0, SmallBroker

SERVICE = "/tidemark.v1.TimeSync/"
HARD, SOFT = v1.BarrierKind.HARD, v1.BarrierKind.SOFT


async def code_of(peer: Peer, method: str, request: object) -> Code:
    data = request if isinstance(request, bytes) else bytes(request)  # type: ignore[call-overload]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call(SERVICE + method, data)
    error = ended(caught.value).error
    assert error is not None
    assert error.cause
    return Code(error.code)


async def cut(peer: Peer, *channels: str) -> v1.CutResponse:
    answer = await peer.call(SERVICE + "Cut", bytes(v1.CutRequest(channels=list(channels))))
    return v1.CutResponse.parse(answer)


async def tick_after(peer: Peer, tick: int) -> int:
    """A cut above it: an idle channel closes a new tick five times a second."""
    while (found := (await cut(peer, V0)).time_tick) <= tick:
        await anyio.lowlevel.checkpoint()
    return found


async def join(peer: Peer, name: str = "a", kind: v1.BarrierKind = HARD) -> int:
    request = v1.JoinBarrierRequest(barrier="q", kind=kind, peer=name, lease_ms=10_000)
    answer = await peer.call(SERVICE + "JoinBarrier", bytes(request))
    return v1.JoinBarrierResponse.parse(answer).lease_id


def report(lease_id: int, tick: int, name: str = "a") -> v1.ReportTickRequest:
    return v1.ReportTickRequest(
        barrier="q", kind=HARD, peer=name, lease_id=lease_id, time_tick=tick
    )


async def reported(peer: Peer, lease_id: int, tick: int) -> v1.ReportTickResponse:
    answer = await peer.call(SERVICE + "ReportTick", bytes(report(lease_id, tick)))
    return v1.ReportTickResponse.parse(answer)


async def watching(peer: Peer, after: int = 0) -> PeerStream:
    """As a unary-stream client does it: one request, then half-closed at once."""
    stream = peer.open(SERVICE + "WatchBarrier", {})
    await stream.send(bytes(v1.WatchBarrierRequest(barrier="q", kind=HARD, after_tick=after)))
    await stream.half_close()
    return stream


async def test_a_cut_names_every_channel_in_the_order_asked(peer: Peer) -> None:
    stream = peer.produce()
    await stream.receive()
    await stream.send(append(1), append(2))
    await stream.receive()
    await stream.receive()
    found = await cut(peer, V0, P0, V0)
    assert [it.channel for it in found.ends] == [V0, P0, V0]
    assert len({it.end_id for it in found.ends}) == 1
    assert found.time_tick > 0


async def test_bad_cuts_have_a_code(peer: Peer) -> None:
    bad = [
        (v1.CutRequest(), Code.INVALID_ARGUMENT),
        (v1.CutRequest(channels=[""]), Code.INVALID_ARGUMENT),
        (v1.CutRequest(channels=[V0], time_tick=(1 << 64) - 1), Code.INVALID_ARGUMENT),
        (v1.CutRequest(channels=[V0, "by-dev-rootcoord-dml_7"]), Code.CHANNEL_NOT_EXIST),
        (v1.CutRequest(channels=["\x00" * 100_000]), Code.CHANNEL_NOT_EXIST),
        (b"\xff\xff\xff", Code.INVALID_ARGUMENT),
    ]
    for request, code in bad:
        assert await code_of(peer, "Cut", request) is code


async def test_ticks_that_pass_are_streamed_until_the_watcher_goes(
    peer: Peer, broker: SmallBroker
) -> None:
    lease_id = await join(peer)
    watch = await watching(peer)
    ticks: list[int] = []
    for _ in range(3):
        ticks.append(await tick_after(peer, ticks[-1] if ticks else 0))
        assert (await reported(peer, lease_id, ticks[-1])).time_tick == ticks[-1]
        news = v1.WatchBarrierResponse.parse(await watch.receive())
        assert news.time_ticks == ticks[-1:]
        assert news.barrier is not None
        assert [it.name for it in news.barrier.peers] == ["a"]
    late = await watching(peer, ticks[0])
    assert v1.WatchBarrierResponse.parse(await late.receive()).time_ticks == ticks[1:]
    assert (await reported(peer, lease_id, ticks[0])).late
    for stream in (watch, late):
        stream.call.cancel()
    with anyio.fail_after(ANSWER_S):
        while broker.edge.open_calls:
            await anyio.lowlevel.checkpoint()


async def test_a_watch_outlives_the_barriers_actor(peer: Peer, broker: SmallBroker) -> None:
    lease_id = await join(peer)
    watch = await watching(peer)
    first = (await cut(peer, V0)).time_tick
    await reported(peer, lease_id, first)
    await watch.receive()
    broker.system.kill("/root/timesync/hard_barrier")
    with anyio.fail_after(ANSWER_S):
        while True:  # until the new one is there and knows how far the pchannels are
            try:
                lease_id = await join(peer)
                second = await tick_after(peer, first)
                await reported(peer, lease_id, second)
                break
            except grpc.aio.AioRpcError:
                await anyio.lowlevel.checkpoint()
    assert v1.WatchBarrierResponse.parse(await watch.receive()).time_ticks == [second]
    watch.call.cancel()


async def test_watchers_are_told_when_the_server_stops(peer: Peer, broker: SmallBroker) -> None:
    watch = await watching(peer)
    await join(peer)
    with anyio.fail_after(ANSWER_S):
        while not broker.edge.open_calls:
            await anyio.lowlevel.checkpoint()
    await broker.edge.stop(deadline_s=60.0)
    end = await watch.end()
    assert end.error is not None
    assert end.error.code == Code.ON_SHUTDOWN


async def test_bad_barrier_calls_have_a_code_and_leave_no_trace(peer: Peer) -> None:
    lease_id = await join(peer)
    tick = (await cut(peer, V0)).time_tick
    before = await listed(peer)
    bad: list[tuple[str, object, Code]] = [
        ("JoinBarrier", joining(lease_ms=0), Code.INVALID_ARGUMENT),
        ("JoinBarrier", joining(lease_ms=-5), Code.INVALID_ARGUMENT),
        ("JoinBarrier", joining(peer=""), Code.INVALID_ARGUMENT),
        ("JoinBarrier", joining(interval_ms=-1), Code.INVALID_ARGUMENT),
        ("JoinBarrier", joining(kind=v1.BarrierKind.UNSPECIFIED), Code.INVALID_ARGUMENT),
        ("JoinBarrier", joining(barrier="cluster", kind=SOFT), Code.RESOURCE_ACQUIRED),
        ("JoinBarrier", b"\x08", Code.INVALID_ARGUMENT),
        ("ReportTick", report(lease_id + 1, tick), Code.CHANNEL_FENCED),
        ("ReportTick", report(lease_id, tick, "b"), Code.INVALID_REQUEST_SEQ),
        ("ReportTick", report(lease_id, tick + (1 << 40)), Code.INVALID_ARGUMENT),
        ("ReportTick", v1.ReportTickRequest(barrier="q", peer="a"), Code.INVALID_ARGUMENT),
        ("WatchBarrier", v1.WatchBarrierRequest(barrier="q"), Code.INVALID_ARGUMENT),
        ("WatchBarrier", b"\x0a\xff", Code.INVALID_ARGUMENT),
    ]
    for method, request, code in bad:
        assert await code_of(peer, method, request) is code, (method, request)
    assert await listed(peer) == before


def joining(
    *,
    barrier: str = "new",
    kind: v1.BarrierKind = HARD,
    peer: str = "a",
    lease_ms: int = 1000,
    interval_ms: int = 0,
) -> v1.JoinBarrierRequest:
    return v1.JoinBarrierRequest(
        barrier=barrier, kind=kind, peer=peer, lease_ms=lease_ms, interval_ms=interval_ms
    )


async def listed(peer: Peer) -> list[tuple[str, int, list[str]]]:
    answer = await peer.call(SERVICE + "ListBarriers", b"")
    found = v1.ListBarriersResponse.parse(answer).barriers
    return [(it.name, it.kind, [each.name for each in it.peers]) for it in found]


async def test_leaving_is_idempotent_and_barriers_are_listed(peer: Peer) -> None:
    lease_id = await join(peer)
    assert await listed(peer) == [("cluster", SOFT, [P0]), ("q", HARD, ["a"])]
    leave = v1.LeaveBarrierRequest(barrier="q", kind=HARD, peer="a", lease_id=lease_id)
    for _ in range(2):
        assert await peer.call(SERVICE + "LeaveBarrier", bytes(leave)) == b""
    assert await listed(peer) == [("cluster", SOFT, [P0]), ("q", HARD, [])]
