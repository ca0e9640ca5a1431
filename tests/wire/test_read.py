"""Reading batches through `tidemark.v1.Log`: whole batches, credit, positions, ends."""

from dataclasses import replace

import anyio
import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.batches import STORED, Landed, ReadAnswer, ReadBatch, scan_read_response
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_CONSUMER, CreateHeader
from tests.create_headers import create_header
from tests.wire.peer import Peer, PeerStream
from tests.wire.small_broker import FIRST_TERM, P0, V0, SmallBroker
from tests.wire.test_append import batch, told
from tests.wire.test_append import opened as appending
from tests.wire.test_consume import appended

READ = "/tidemark.v1.Log/Read"
PLENTY = 1 << 30
OTHER = f"{P0}_200v0"


async def reading(peer: Peer, wanted: v1.ReadOpen, credit_bytes: int = PLENTY) -> PeerStream:
    header = create_header(CreateHeader(P0, FIRST_TERM))
    stream = peer.open(READ, {CREATE_CONSUMER: header})
    assert await stream.receive() == b""
    await stream.send(bytes(v1.ReadRequest(open=wanted, credit_bytes=credit_bytes)))
    return stream


async def read(stream: PeerStream, count: int) -> list[tuple[ReadBatch, ReadAnswer]]:
    """The next batches, each with the answer it came in."""
    found: list[tuple[ReadBatch, ReadAnswer]] = []
    while len(found) < count:
        answer = scan_read_response(await stream.receive())
        if answer.batch is not None:
            found.append((answer.batch, answer))
    return found


async def to_the_end(stream: PeerStream) -> tuple[list[ReadBatch], ReadAnswer]:
    found: list[ReadBatch] = []
    while True:
        answer = scan_read_response(await stream.receive())
        if answer.batch is not None:
            found.append(answer.batch)
        if answer.end:
            assert await stream.status() == (0, None)
            return found, answer


async def landed(peer: Peer, *requests: v1.AppendRequest) -> list[Landed]:
    answers = await told(await appending(peer), *requests)
    return [it for it in answers if isinstance(it, Landed)]


async def code_of(peer: Peer, wanted: v1.ReadOpen) -> tuple[Code, str]:
    stream = await reading(peer, wanted)
    with anyio.fail_after(60):
        ended = await stream.end()
    assert ended.error is not None
    return Code(ended.error.code), ended.error.cause


async def test_a_batch_comes_whole_and_a_single_message_as_it_is_stored(peer: Peer) -> None:
    (first,) = await landed(peer, batch(b"a", b"bc", key_sizes=[2, 0], keys=b"k"))
    (single,) = await appended(peer, b"single")
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]))
    (one, _), (other, _) = await read(stream, 2)
    assert (one.sizes, one.body, one.key_sizes, one.keys) == ((1, 2), b"abc", (2, 0), b"k")
    assert (one.message_id, one.tick, one.first, one.end) == (first.message_id, first.tick, 0, 2)
    assert (other.message_id, other.form, other.vchannel) == (single.message_id, STORED, V0)
    assert b"single" in other.body


async def test_a_read_that_begins_inside_a_batch_gets_it_whole_with_the_range_that_is_meant(
    peer: Peer,
) -> None:
    (first,) = await landed(peer, batch(b"a", b"b", b"c", b"d"))
    for wanted in (
        v1.ReadOpen(from_id=first.message_id + 2),
        v1.ReadOpen(from_tick=first.tick + 2),
        v1.ReadOpen(position=v1.ReadPosition(next_id=first.message_id + 2)),
    ):
        stream = await reading(peer, replace(wanted, vchannels=[V0], until_tick=first.tick + 2))
        (found,), end = await to_the_end(stream)
        assert (found.body, found.first, found.end) == (b"abcd", 2, 3)
        assert end.closed_tick == first.tick + 2


async def test_a_reader_gets_no_more_than_its_credit_and_one_batch(peer: Peer) -> None:
    body = bytes(100_000)
    await landed(peer, *[batch(body)] * 20)
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]), credit_bytes=150_000)
    found = await read(stream, 2)
    with anyio.move_on_after(0.3):  # too short can only hide a fault, never make one
        found += await read(stream, 1)
    assert len(found) == 2


async def test_more_credit_brings_more(peer: Peer) -> None:
    await landed(peer, *[batch(bytes(100_000))] * 5)
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]), credit_bytes=1000)
    for _ in range(5):
        assert len(await read(stream, 1)) == 1
        await stream.send(bytes(v1.ReadRequest(credit_bytes=300_000)))


async def test_another_stream_goes_on_at_a_position(peer: Peer) -> None:
    await landed(peer, *[batch(b"%d" % it) for it in range(10)])
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]), credit_bytes=1000)
    seen: list[bytes] = []
    position = None
    while position is None or not seen:
        answer = scan_read_response(await stream.receive())
        seen += [answer.batch.body] if answer.batch else []
        position = answer.position or position
    at = v1.ReadPosition(
        next_id=position.next_id,
        time_tick=position.tick,
        open_id=position.open_id,
        inside=position.inside,
    )
    rest = await reading(peer, v1.ReadOpen(vchannels=[V0], position=at))
    seen += [it.body for it, _ in await read(rest, 10 - len(seen))]
    assert seen == [b"%d" % it for it in range(10)]


async def test_who_began_behind_a_purge_is_not_told_of_it_on_another_stream(peer: Peer) -> None:
    """It reads two vchannels: where it is on the one lies before what was purged of the other."""
    bodies = [bytes(100_000), b"\1" * 100_000]
    (*_, purged) = await landed(
        peer, *[batch(it, vchannel=OTHER) for it in bodies], batch(b"purged")
    )

    async def purge(until: Landed) -> None:
        await landed(peer, batch(b"closes it", vchannel=OTHER))
        request = v1.PurgeRequest(vchannel=V0, upto_tick=until.tick)
        await peer.call("/tidemark.v1.Space/Purge", bytes(request))

    await purge(purged)
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0, OTHER]), credit_bytes=1000)
    ((first, answer),) = await read(stream, 1)
    stream.call.cancel()
    assert first.body == bodies[0]
    assert answer.position is not None
    assert answer.position.next_id < purged.message_id
    wanted = v1.ReadOpen(vchannels=[V0, OTHER], position=v1.ReadPosition(*answer.position))
    stream = await reading(peer, wanted)
    found = [it.body for it, _ in await read(stream, 2)]
    stream.call.cancel()
    assert found == [bodies[1], b"closes it"]
    # Of a later purge it is told: it was to read that.
    (missed,) = await landed(peer, batch(b"missed"))
    with anyio.fail_after(60):
        while True:
            try:
                await purge(missed)
                break
            except grpc.aio.AioRpcError:
                await anyio.sleep(0.05)  # the reader that has left holds it for a moment
    code, cause = await code_of(peer, wanted)
    assert code is Code.UNRECOVERABLE
    assert "removed by a purge" in cause


async def test_several_vchannels_and_types_are_chosen_by_the_server(peer: Peer) -> None:
    third = f"{P0}_300v0"
    found = await landed(
        peer,
        batch(b"a"),
        batch(b"b", vchannel=OTHER),
        batch(b"c", vchannel=third),
        batch(b"d", type=3),
    )
    until = found[-1].tick
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0, OTHER], until_tick=until))
    assert [it.body for it in (await to_the_end(stream))[0]] == [b"a", b"b", b"d"]
    stream = await reading(peer, v1.ReadOpen(types=[2], until_tick=until))
    assert [it.body for it in (await to_the_end(stream))[0]] == [b"a", b"b", b"c"]


async def test_the_latest_begins_behind_what_is_there(peer: Peer) -> None:
    await landed(peer, batch(b"before"))
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0], latest=True))
    scan_read_response(await stream.receive())  # a tick: it is open
    await landed(peer, batch(b"after"))
    ((found, _),) = await read(stream, 1)
    assert found.body == b"after"


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (v1.ReadOpen(vchannels=["p_1v0"]), Code.INVALID_ARGUMENT, "p_1v0"),
        (v1.ReadOpen(vchannels=[""]), Code.INVALID_ARGUMENT, "vchannel ''"),
        (v1.ReadOpen(until_tick=1 << 62), Code.INVALID_ARGUMENT, "ahead"),
        (v1.ReadOpen(from_tick=1 << 62), Code.INVALID_ARGUMENT, "ahead"),
        (v1.ReadOpen(from_id=10_000), Code.INVALID_ARGUMENT, "10000"),
        (v1.ReadOpen(from_id=-3), Code.INVALID_ARGUMENT, "-3"),
        (v1.ReadOpen(position=v1.ReadPosition()), Code.INVALID_ARGUMENT, "position"),
        (
            v1.ReadOpen(position=v1.ReadPosition(next_id=2, open_id=3)),
            Code.INVALID_ARGUMENT,
            "position",
        ),
        (
            v1.ReadOpen(position=v1.ReadPosition(next_id=2, inside=-1)),
            Code.INVALID_ARGUMENT,
            "position",
        ),
        (
            v1.ReadOpen(position=v1.ReadPosition(next_id=10_000)),
            Code.INVALID_ARGUMENT,
            "not written",
        ),
    ],
)
async def test_a_bad_read_is_refused_with_what_is_wrong(
    peer: Peer, wanted: v1.ReadOpen, code: Code, words: str
) -> None:
    found, cause = await code_of(peer, wanted)
    assert (found, words in cause) == (code, True), cause


async def test_a_stream_that_is_not_opened_first_is_refused(
    broker: SmallBroker, peer: Peer
) -> None:
    header = create_header(CreateHeader(P0, FIRST_TERM))
    stream = peer.open(READ, {CREATE_CONSUMER: header})
    await stream.receive()
    await stream.send(bytes(v1.ReadRequest(credit_bytes=1)))
    ended = await stream.end()
    assert ended.error is not None
    assert ended.error.code == Code.INVALID_ARGUMENT


async def test_a_server_that_stops_ends_a_read_and_says_why(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]))
    await stream.receive()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: broker.edge.stop(deadline_s=60.0))
        ended = await stream.end()
    assert ended.error is not None
    assert ended.error.code == Code.ON_SHUTDOWN


async def test_a_reader_that_half_closes_is_let_go(broker: SmallBroker, peer: Peer) -> None:
    stream = await reading(peer, v1.ReadOpen(vchannels=[V0]))
    await stream.receive()
    await stream.half_close()
    assert (await stream.end()).code == 0
    with anyio.fail_after(60):
        while broker.scanner_paths():
            await anyio.lowlevel.checkpoint()
