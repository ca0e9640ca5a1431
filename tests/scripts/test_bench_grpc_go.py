"""A client that puts the bytes of grpc-go on the wire, beside bytes of a real grpc-go 1.71.0."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from benchmark.grpc_go.connection import CallFailed, Connection
from benchmark.grpc_go.header_fields import HeaderEncoder
from benchmark.grpc_go.messages import ProduceRequests, header_block, http_frame
from benchmark.grpc_go.streams import QUEUED_BYTES_MAX, Stream
from benchmark.grpc_go.windows import BDP_BYTES_MAX, WINDOW_BYTES, Bandwidth, ConnectionWindow
from benchmark.measures.grpc_go_clients import GoClients
from hypothesis import given
from hypothesis import strategies as st
from served_broker import served_broker

from schemas.encoding.frames import frame, frames

RUN_S_MAX = 60
DISCOVER = "/milvus.proto.streaming.StreamingCoordAssignmentService/AssignmentDiscover"
PRODUCE = "/milvus.proto.streaming.StreamingNodeHandlerService/Produce"
FIRST_HEADERS = bytes.fromhex(
    "838645b4629351ded42f5d8749d7426c28e935532fb93614749aa9af1cf6490a1069aaa4b527716cee6215885083"
    "4d5525a937cc821fb96c418b089d5c0b8170dc69903adf5f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bba"
    "15c140027465864d833505b11f40899acac8b24d494f6a7f877df7df71f0bd6f"
)
SECOND_HEADERS = bytes.fromhex(
    "838645aa629351ded42f5d8749d7426c28e935532fb93614749aa9b49e42e31d52505b3716cee62158d761e4b485"
    "c3c2c1c07f00877df7df642db56f408b25851a4ab5761e4b485b3fa0bd39f361a72b79f96da24307d4627c1cc4ff"
    "7253b13fb8828fcf78364334107f"
)
REQUEST_HEAD = bytes.fromhex("00000004490ac60808f40412c0080a8008")
REQUEST_TAIL = bytes.fromhex(
    "12060a025f68120012210a035f7663121a62792d6465762d726f6f74636f6f72642d646d6c5f315f31763012070a"
    "025f7412013212070a025f76120132"
)
PROPERTIES = (
    (b"_t", b"2"), (b"_v", b"2"), (b"_h", b""), (b"_vc", b"by-dev-rootcoord-dml_1_1v0"),
)  # fmt: skip
MESSAGES = st.lists(st.integers(0, 70_000), min_size=1, max_size=5)


def test_header_blocks_of_two_calls_have_the_bytes_of_grpc_go() -> None:
    encoder, authority = HeaderEncoder(), "127.0.0.1:43075"
    first = header_block(encoder, DISCOVER, authority, [("grpc-timeout", "99996918u")])
    assert first == FIRST_HEADERS
    create = ("create-producer", "ChoKFmJ5LWRldi1yb290Y29vcmQtZG1sXzEQAg==")
    second = header_block(encoder, PRODUCE, authority, [("grpc-timeout", "99993154u"), create])
    assert second == SECOND_HEADERS


def test_a_request_has_the_bytes_of_gos_protobuf() -> None:
    requests = ProduceRequests(bytes(1024), PROPERTIES, Random(1))
    made = {frame(requests.request(628)) for _ in range(200)}
    assert REQUEST_HEAD + bytes(1024) + REQUEST_TAIL in made
    assert len(made) == 4, "a map is walked from one of its entries, in the order of its entries"


def test_five_of_eight_maps_are_walked_from_their_first_entry() -> None:
    requests = ProduceRequests(b"x", PROPERTIES, Random(1))
    counts = Counter([requests.request(1) for _ in range(8_000)])
    (_, most), *others = counts.most_common()
    assert 4_800 < most < 5_200
    assert all(850 < count < 1_150 for _, count in others)


def test_the_connection_is_reopened_after_a_quarter_of_its_window() -> None:
    window = ConnectionWindow()
    assert window.on_data(WINDOW_BYTES // 4 - 1) == 0
    assert window.on_data(1) == WINDOW_BYTES // 4
    assert window.reset() == 0
    assert window.grow(100_000) == 100_000 - WINDOW_BYTES


def test_windows_grow_while_more_arrives_between_ping_and_answer_than_ever() -> None:
    bandwidth = Bandwidth()
    sizes = []
    for count in (10, 200_000, 200_000, 50_000, 30_000_000):
        assert bandwidth.add(count), "the first data after an answer sends a ping"
        assert not bandwidth.add(0), "the ping has no answer yet"
        bandwidth.sent(0.0)
        sizes.append(bandwidth.answered(0.001))
    assert sizes == [0, 400_000, 0, 0, BDP_BYTES_MAX]
    assert not bandwidth.add(1), "no pings at the limit"


@given(MESSAGES, st.sampled_from([1_009, 4_093, 16_384]))
def test_a_sender_within_the_windows_gets_every_message_through(
    sizes: list[int], piece: int
) -> None:
    received: list[bytes] = []
    stream = Stream(1, received.append, lambda: None, (WINDOW_BYTES, WINDOW_BYTES))
    messages = [bytes([at]) * size for at, size in enumerate(sizes)]
    data, room = frames(messages), WINDOW_BYTES
    while data:
        sent, data = data[: min(room, piece)], data[min(room, piece) :]
        assert sent, "the window stays shut although everything was read"
        room += sum(stream.arrived(sent)) - len(sent)
    assert received == messages


@given(MESSAGES, st.integers(2_000, 100_000))
def test_what_is_queued_is_sent_once_in_frames_within_the_windows(
    sizes: list[int], window: int
) -> None:
    stream = Stream(1, lambda _: None, lambda: None, (WINDOW_BYTES, WINDOW_BYTES))
    messages = [bytes([at]) * size for at, size in enumerate(sizes)]
    for message in messages:
        stream.send(message)
    assert stream.has_room == (sum(sizes) + 5 * len(sizes) < QUEUED_BYTES_MAX)
    sent = b""
    while len(sent) < len(frames(messages)):
        made = stream.next_frame(window)
        if made is None:
            stream.send_window += 10_000
            continue
        payload = made[9:]
        assert made == http_frame(0, payload, stream=1)
        assert 0 < len(payload) <= min(window, 16_384)
        sent += payload
    assert sent == frames(messages)
    assert stream.next_frame(window) is None
    assert stream.has_room


def test_what_is_produced_is_consumed_from_a_real_broker(tmp_path: Path) -> None:
    with served_broker(tmp_path / "data", "--pchannels", "6") as broker:
        clients = GoClients(broker.address)

        async def run() -> None:
            async with asyncio.timeout(RUN_S_MAX):
                # More than fits into the windows that both sides begin with.
                assert (await clients.produce(3_000))["messages"] == 3_000
                assert (await clients.consume(3_000))["messages"] == 3_000

        asyncio.run(run())


def test_the_end_of_the_connection_fails_a_call() -> None:
    async def run() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(http_frame(4, b"") + http_frame(7, bytes(8) + b"too many calls"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server, asyncio.timeout(RUN_S_MAX):
            port = server.sockets[0].getsockname()[1]
            connection = await Connection.open(f"127.0.0.1:{port}")
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            stream = connection.call(PRODUCE, (), lambda _: None)
            stream.on_error = failed.set_exception
            if connection.error is None:
                with pytest.raises(CallFailed, match=r"too many calls|closed|broke"):
                    await failed
            connection.close()

    asyncio.run(run())
