"""Batched streams, both ends over a real socket."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.transport import BatchStream, ServerBatchStream, Stalled, StreamGone
from schemas.encoding.frames import frames
from schemas.encoding.oversize import FrameTooLarge
from tests.broker.transport.echo import LIMIT_BYTES, call, serving


async def collected(stream: BatchStream, count: int) -> list[bytes]:
    found: list[bytes] = []
    with anyio.fail_after(60):
        while len(found) < count:
            batch = await stream.read_batch()
            assert batch, "ended early"
            found += batch
    return found


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.lists(st.binary(max_size=40_000), min_size=1, max_size=6), max_size=4))
async def test_messages_arrive_whole_and_in_order_however_they_are_batched(
    batches: list[list[bytes]],
) -> None:
    async with serving() as (_, channel), call(channel) as stream:
        for batch in batches:
            await stream.write_batch(batch)
        sent = [message for batch in batches for message in batch]
        assert await collected(stream, len(sent)) == sent
        await stream.end()
        assert await stream.read_batch() == []
        assert stream.status().code == 0


async def test_more_than_the_windows_hold_goes_through_as_it_is_read() -> None:
    async def blast(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        await stream.write_batch([bytes([number]) * 900_000 for number in range(20)])

    async with serving(blast) as (_, channel), call(channel) as stream:
        await stream.write_batch([b"go"])
        found = await collected(stream, 20)
        assert [message[0] for message in found] == list(range(20))
        assert all(len(message) == 900_000 for message in found)


async def test_what_is_taken_from_a_closed_stream_is_given_back_to_the_connection() -> None:
    async def blast(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        # More than half of the stream's window: h2 gives it back at once, or never.
        await stream.write_batch([bytes(50_000)] * 60)

    async with serving(blast) as (_, channel), call(channel) as stream:
        await stream.write_batch([b"go"])
        await stream.end()
        with anyio.fail_after(60):
            await stream._stream.trailers_received.wait()
        assert not stream._stream.closable
        await collected(stream, 60)
        window = stream._h2._inbound_flow_control_window_manager
        assert window.current_window_size + window._bytes_processed == window.max_window_size


async def test_many_messages_cost_few_writes() -> None:
    async with serving() as (_, channel), call(channel) as stream:
        writes: list[int] = []
        transport = stream._stream.connection._transport
        write = transport.write

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                writes.append(len(data))
                write(data)

        stream._stream.connection._transport = Counting()  # type: ignore[assignment]
        await stream.write_batch([b"x" * 100] * 500)
        assert len(writes) <= 2
        assert len(await collected(stream, 500)) == 500


async def test_a_message_over_the_limit_is_refused_by_its_length() -> None:
    refused: list[FrameTooLarge] = []

    async def serve(stream: ServerBatchStream) -> None:
        try:
            await stream.read_batch()
        except FrameTooLarge as error:
            refused.append(error)

    async with serving(serve) as (_, channel), call(channel) as stream:
        await stream.write_framed(b"\x00\x7f\xff\xff\xff")
        assert await stream.read_batch() == []
    assert [(error.limit, error.length) for error in refused] == [(LIMIT_BYTES, 0x7FFFFFFF)]


async def test_half_a_message_is_waited_for_as_long_as_told() -> None:
    stalls: list[str] = []

    async def serve(stream: ServerBatchStream) -> None:
        try:
            await stream.read_batch()
        except Stalled as error:
            stalls.append(str(error))

    async with serving(serve, stall_s=0.05) as (_, channel), call(channel) as stream:
        await stream.write_framed(b"\x00\x00\x00\x00\x09half")
        assert await stream.read_batch() == []
    assert "9 bytes of a message" in stalls[0]


async def test_an_idle_stream_is_waited_for_for_ever() -> None:
    async with serving(stall_s=0.01) as (_, channel), call(channel, stall_s=0.01) as stream:
        with anyio.move_on_after(0.1) as waiting:
            await stream.read_batch()
        assert waiting.cancelled_caught
        await stream.write_batch([b"still here"])
        assert await collected(stream, 1) == [b"still here"]


async def test_a_peer_that_shuts_its_window_stalls_the_writer_until_its_deadline() -> None:
    stalled = anyio.Event()

    async def serve(stream: ServerBatchStream) -> None:
        with pytest.raises(Stalled):
            await stream.write_batch([b"x" * (8 << 20)], deadline_s=0.1)
        stalled.set()

    async with serving(serve) as (_, channel), call(channel):
        with anyio.fail_after(60):
            await stalled.wait()


async def test_what_would_have_to_wait_is_not_written_at_once() -> None:
    async def serve(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        await stream.write_batch([b"first"])
        wrote: list[bool] = []
        while not wrote or wrote[-1]:
            wrote.append(stream.write_at_once(frames([b"x" * 100_000])))
        await stream.write_batch([b"%d" % (len(wrote) - 1)])

    async with serving(serve) as (_, channel), call(channel) as stream:
        await stream.write_batch([b"go"])
        found: list[bytes] = []
        while not (found and found[-1].isdigit()):
            found += await collected(stream, 1)
        assert found[0] == b"first"
        assert found[1:-1] == [b"x" * 100_000] * int(found[-1])
        assert len(found) > 2


async def test_nothing_is_written_at_once_on_a_stream_that_was_reset() -> None:
    wrote: list[bool] = []
    served = anyio.Event()

    async def serve(stream: ServerBatchStream) -> None:
        try:
            await stream.read_batch()
            await stream.write_batch([b"first"])
            await stream.read_batch()
        finally:
            wrote.append(stream.write_at_once(frames([b"nobody reads this"])))
            served.set()

    async with serving(serve) as (_, channel):
        async with call(channel) as stream:
            await stream.write_batch([b"go"])
            assert await collected(stream, 1) == [b"first"]
        with anyio.fail_after(60):
            await served.wait()
    assert wrote == [False]


async def test_a_cancelled_write_is_finished_by_the_next_one() -> None:
    large = b"x" * 1_000_000
    gave_up = anyio.Event()

    async def serve(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        with anyio.move_on_after(0.05) as given_up:
            await stream.write_batch([large] * 8)
        assert given_up.cancelled_caught
        gave_up.set()
        await stream.write_batch([b"last"])

    async with serving(serve) as (_, channel), call(channel) as stream:
        await stream.write_batch([b"go"])
        await gave_up.wait()
        found = await collected(stream, 9)
        assert found == [large] * 8 + [b"last"]


async def test_a_reset_by_the_client_reaches_the_server_and_a_lost_server_the_client() -> None:
    cancelled = anyio.Event()

    async def serve(stream: ServerBatchStream) -> None:
        try:
            await stream.read_batch()
            await stream.write_batch([b"hello"])
            await stream.read_batch()
        finally:
            cancelled.set()

    async with serving(serve) as (listener, channel):
        async with call(channel) as stream:
            await stream.write_batch([b"go"])
            await collected(stream, 1)
        with anyio.fail_after(60):
            await cancelled.wait()
        async with call(channel) as stream:
            await stream.write_batch([b"go"])
            await collected(stream, 1)
            await listener.hang_up()
            with anyio.fail_after(60), pytest.raises(StreamGone):
                await stream.read_batch()
            with pytest.raises(StreamGone):
                await stream.write_batch([b"anybody?"])
            with pytest.raises(StreamGone):
                stream.status()


async def test_what_arrived_before_the_connection_was_lost_can_still_be_read() -> None:
    async with serving() as (listener, channel), call(channel) as stream:
        await stream.write_batch([b"a", b"b"])
        with anyio.fail_after(60):
            while not stream._arrivals._chunks:
                await anyio.lowlevel.checkpoint()
        await listener.hang_up()
        assert await collected(stream, 2) == [b"a", b"b"]
        with pytest.raises(StreamGone):
            await stream.read_batch()
