"""Frames of data that h2 did not make: byte for byte what it would have made."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from broker.transport.data_frames import data_frames, send_window

STREAM = 1
REQUEST = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "here")]


def pair(frame_bytes_max: int = 16_384) -> tuple[H2Connection, H2Connection]:
    """A client with an open stream, and its server."""
    client = H2Connection(H2Configuration(client_side=True))
    server = H2Connection(H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    server.update_settings({SettingCodes.MAX_FRAME_SIZE: frame_bytes_max})
    client.send_headers(STREAM, REQUEST)
    for _ in range(3):
        exchange(client, server)
        exchange(server, client)
    return client, server


def exchange(source: H2Connection, target: H2Connection) -> list[object]:
    data = source.data_to_send()
    return list(target.receive_data(data)) if data else []


@given(
    sizes=st.lists(st.integers(0, 20_000), max_size=4),
    frame_bytes_max=st.sampled_from([16_384, 17_000, 200_000]),
)
def test_they_are_those_that_h2_makes_and_leave_the_same_windows(
    sizes: list[int], frame_bytes_max: int
) -> None:
    (ours, server), (theirs, _) = pair(frame_bytes_max), pair(frame_bytes_max)
    sent = wire = b""
    for number, size in enumerate(sizes):
        data = bytes([number]) * min(size, ours.local_flow_control_window(STREAM))
        sent += data
        assert send_window(ours, STREAM) == ours.local_flow_control_window(STREAM)
        made = data_frames(ours, STREAM, memoryview(data))
        assert made is not None
        wire += b"".join(made)
        for start in range(0, len(data), theirs.max_outbound_frame_size):
            theirs.send_data(STREAM, data[start : start + theirs.max_outbound_frame_size])
    assert wire == bytes(theirs._data_to_send)
    left = ours.local_flow_control_window(STREAM)
    assert left == theirs.local_flow_control_window(STREAM)
    assert ours.outbound_flow_control_window == theirs.outbound_flow_control_window
    came = [it for it in server.receive_data(wire) if isinstance(it, DataReceived)]
    assert b"".join([it.data for it in came]) == sent


def test_the_socket_gets_views_of_what_is_sent() -> None:
    client, _ = pair()
    data = memoryview(bytes(20_000))
    made = data_frames(client, STREAM, data)
    assert made is not None
    parts = [it for it in made if isinstance(it, memoryview)]
    assert [len(it) for it in parts] == [16_384, 20_000 - 16_384]
    assert all(it.obj is data.obj for it in parts)


def test_the_answering_side_may_send_after_the_asking_one_has_ended() -> None:
    client, server = pair()
    server.send_headers(STREAM, [(":status", "200")])
    client.end_stream(STREAM)
    exchange(client, server)
    assert data_frames(server, STREAM, memoryview(b"answer"))


@pytest.mark.parametrize("ended", ["never opened", "half-closed", "reset", "goodbye"])
def test_a_stream_that_takes_no_data_gets_none(ended: str) -> None:
    client, server = pair()
    stream_id = STREAM
    match ended:
        case "never opened":
            stream_id = STREAM + 2
        case "half-closed":
            client.end_stream(STREAM)
        case "reset":
            server.reset_stream(STREAM)
            exchange(server, client)
        case _:
            client.close_connection()
    client.clear_outbound_data_buffer()
    assert send_window(client, stream_id) is None
    assert data_frames(client, stream_id, memoryview(b"late")) is None
    assert client.data_to_send() == b""
