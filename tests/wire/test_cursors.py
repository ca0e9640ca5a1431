"""Named cursors as any gRPC client sees them: answers and codes."""

import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.peer import Peer, ended
from tests.wire.small_broker import P0, V0

SERVICE = "/tidemark.v1.TimeSync/"


async def closed_tick(peer: Peer) -> int:
    answer = await peer.call(SERVICE + "Cut", bytes(v1.CutRequest(channels=[V0])))
    return v1.CutResponse.parse(answer).time_tick


async def moved(peer: Peer, name: str, tick: int, *channels: str) -> v1.CursorInfo:
    request = v1.MoveCursorRequest(name=name, channels=list(channels), time_tick=tick)
    return v1.CursorInfo.parse(await peer.call(SERVICE + "MoveCursor", bytes(request)))


async def code_of(peer: Peer, method: str, request: object) -> Code:
    data = request if isinstance(request, bytes) else bytes(request)  # type: ignore[call-overload]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call(SERVICE + method, data)
    error = ended(caught.value).error
    assert error is not None
    assert error.cause
    return Code(error.code)


async def test_a_cursor_is_moved_shown_and_dropped(peer: Peer) -> None:
    tick = await closed_tick(peer)
    made = await moved(peer, "copied", tick, V0, P0)
    assert (made.name, made.time_tick, made.channels) == ("copied", tick, [V0, P0])
    assert made.closed_tick >= tick
    later = await closed_tick(peer)
    assert (await moved(peer, "copied", later)).channels == [V0, P0]
    got = await peer.call(SERVICE + "GetCursor", bytes(v1.GetCursorRequest(name="copied")))
    assert v1.CursorInfo.parse(got).time_tick == later
    listed = await peer.call(SERVICE + "ListCursors", b"")
    assert [it.name for it in v1.ListCursorsResponse.parse(listed).cursors] == ["copied"]
    await peer.call(SERVICE + "DropCursor", bytes(v1.DropCursorRequest(name="copied")))
    listed = await peer.call(SERVICE + "ListCursors", b"")
    assert v1.ListCursorsResponse.parse(listed).cursors == []


async def test_bad_calls_have_a_code_and_move_nothing(peer: Peer) -> None:
    tick = await closed_tick(peer)
    await moved(peer, "copied", tick, V0)
    move = v1.MoveCursorRequest
    bad: list[tuple[str, object, Code]] = [
        ("MoveCursor", move(), Code.INVALID_ARGUMENT),
        ("MoveCursor", move(name="copied", time_tick=tick - 1), Code.INVALID_REQUEST_SEQ),
        ("MoveCursor", move(name="copied", time_tick=(1 << 64) - 1), Code.INVALID_ARGUMENT),
        ("MoveCursor", move(name="new", time_tick=tick), Code.CHANNEL_NOT_EXIST),
        ("MoveCursor", move(name="n", channels=[""], time_tick=1), Code.CHANNEL_NOT_EXIST),
        ("MoveCursor", move(name="n" * 256, channels=[V0], time_tick=1), Code.INVALID_ARGUMENT),
        ("MoveCursor", move(name="n", channels=[V0] * 5000, time_tick=1), Code.INVALID_ARGUMENT),
        ("GetCursor", v1.GetCursorRequest(name="new"), Code.CHANNEL_NOT_EXIST),
        ("DropCursor", v1.DropCursorRequest(name="new"), Code.CHANNEL_NOT_EXIST),
        ("DropCursor", v1.DropCursorRequest(name="a\n"), Code.INVALID_ARGUMENT),
        ("MoveCursor", b"\xff\xff\xff", Code.INVALID_ARGUMENT),
    ]
    for method, request, code in bad:
        assert await code_of(peer, method, request) is code, request
    listed = await peer.call(SERVICE + "ListCursors", b"")
    (cursor,) = v1.ListCursorsResponse.parse(listed).cursors
    assert (cursor.name, cursor.time_tick, cursor.channels) == ("copied", tick, [V0])
