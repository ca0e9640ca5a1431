"""Frames of data that nobody spells out, and everything else as h2 does it."""

import tracemalloc

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from hyperframe.frame import DataFrame

from broker.transport.untraced import untrace


def connected() -> tuple[H2Connection, H2Connection]:
    client = H2Connection(H2Configuration(client_side=True))
    server = H2Connection(H2Configuration(client_side=False))
    untrace(server)
    for connection in (client, server):
        connection.initiate_connection()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    request = ((":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a"))
    client.send_headers(1, request)
    return client, server


def test_data_arrives_as_before_and_no_text_is_made_of_it() -> None:
    client, server = connected()
    payload = bytes(range(256)) * 60
    client.send_data(1, payload)
    arriving = client.data_to_send()
    tracemalloc.start()
    try:
        events = server.receive_data(arriving)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [it.data for it in events if isinstance(it, DataReceived)] == [payload]
    text_bytes = 2 * len(payload)
    assert most_bytes < 4 * len(payload) + text_bytes / 2  # it is copied, and not spelled out


def test_padding_and_the_end_of_a_stream_are_kept() -> None:
    client, server = connected()
    client.send_data(1, b"with padding", pad_length=7, end_stream=True)
    *_, data, ended = server.receive_data(client.data_to_send())
    assert isinstance(data, DataReceived)
    assert (data.data, data.flow_controlled_length) == (b"with padding", len(b"with padding") + 8)
    assert data.stream_ended is ended


def test_what_h2_would_spell_out_is_what_we_replace() -> None:
    _, server = connected()
    spelled = DataFrame(1, b"x" * 64)
    assert (b"x" * 8).hex() in repr(spelled)
    frames = server.incoming_buffer
    frames.add_data(spelled.serialize())
    assert repr(next(iter(frames))) == "DATA of stream 1"
