"""What we use below the public surface of grpclib and h2. When this fails, an update moved it:
read `broker/transport` again before raising the pinned version."""

import inspect

import grpclib.client
import grpclib.config
import grpclib.protocol
import grpclib.server
import grpclib.utils
from grpclib.config import Configuration
from h2.connection import H2Connection
from h2.frame_buffer import FrameBuffer
from h2.settings import Settings
from h2.stream import H2Stream, H2StreamStateMachine
from h2.windows import WindowManager


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_a_stream_still_hands_data_to_a_buffer_we_can_replace() -> None:
    stream = inspect.getsource(grpclib.protocol.Stream)
    assert "self.buffer = Buffer(" in stream
    assert "self.buffer.eof()" in stream
    processor = inspect.getsource(grpclib.protocol.EventsProcessor)
    assert "stream.buffer.add(" in processor
    assert "_stream.buffer.unacked_size()" in processor
    assert "stream.__terminated__(" in processor
    assert parameters(grpclib.protocol.Buffer.add) == ["self", "data", "ack_size"]
    assert parameters(grpclib.protocol.Connection.ack) == ["self", "stream_id", "size"]


def test_a_buffer_still_keeps_what_came_before_we_replaced_it() -> None:
    buffer = grpclib.protocol.Buffer(lambda size: None)
    buffer.add(b"early", 5)
    assert (buffer._unacked.get_nowait(), buffer._eof, list(buffer._acked)) == (
        (b"early", 5, 5), False, [],
    )  # fmt: skip


def test_a_connection_still_has_its_events_and_its_parts() -> None:
    source = inspect.getsource(grpclib.protocol)
    for name in (
        "self.write_ready = Event()", "self.window_updated = Event()", "self._h2_connection =",
        "self._transport = transport", "def data_send_process(", "def initialize(", "def flush(",
        "self.handler = handler", "self.processors = {", "def closable(", "def reset_nowait(",
    ):  # fmt: skip
        assert name in source, name
    assert parameters(grpclib.protocol.H2Protocol.__init__) == [
        "self", "handler", "config", "h2_config",
    ]  # fmt: skip
    assert parameters(grpclib.protocol.EventsProcessor.__init__) == [
        "self", "handler", "connection",
    ]  # fmt: skip


def test_calls_still_have_what_we_drive_them_by() -> None:
    client = inspect.getsource(grpclib.client.Stream)
    assert "self._release_stream = release_stream" in client
    assert "self._stream = stream" in client
    assert "            self._wrapper = Wrapper()" in client
    assert client.count("with self._wrapper:") == 6
    assert "create_stream(wrapper=self._wrapper)" in client
    wrapper = inspect.getsource(grpclib.utils.Wrapper)
    assert "for task in self._tasks:\n            task.cancel()" in wrapper
    assert "self._tasks.discard(task)" in wrapper
    server = inspect.getsource(grpclib.server.Stream)
    assert "_send_initial_metadata_done = False" in server
    assert "encode_bin_value(self._status_details_codec.encode(" in server
    assert "self._h2_config =" in inspect.getsource(grpclib.server.Server)
    assert callable(grpclib.server.Server._protocol_factory)
    assert "self._mapping = mapping" in inspect.getsource(grpclib.server.Server)
    assert "mapping.get(method_name)" in inspect.getsource(grpclib.server.request_handler)


def test_keepalive_is_still_configured_by_these_names() -> None:
    names = set(inspect.signature(Configuration).parameters)
    assert {
        "_keepalive_time", "_keepalive_timeout", "_keepalive_permit_without_calls",
        "_http2_max_pings_without_data", "_http2_min_sent_ping_interval_without_data",
    } <= names  # fmt: skip


def test_h2_still_shows_what_it_holds() -> None:
    buffer = FrameBuffer(server=True)
    assert isinstance(buffer._data, bytearray)
    assert buffer._preamble_len == len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert buffer._headers_buffer == []
    connection = H2Connection()
    assert isinstance(connection.local_settings, Settings)
    assert isinstance(connection.incoming_buffer, FrameBuffer)
    assert isinstance(connection.max_inbound_frame_size, int)
    assert isinstance(connection.max_outbound_frame_size, int)


def test_h2_still_counts_the_data_that_comes_as_we_do() -> None:
    """Property tests beside `data_frames` compare what is counted; here is all that it may be."""
    connection = inspect.getsource(H2Connection._receive_data_frame)
    assert "self.state_machine.process_input(" in connection
    assert "self._inbound_flow_control_window_manager.window_consumed(" in connection
    stream = inspect.getsource(H2Stream.receive_data)
    assert "self._inbound_window_manager.window_consumed(" in stream
    assert "self._track_content_length(" in stream
    assert "if not self.headers_received" in inspect.getsource(H2StreamStateMachine.data_received)
    consumed = inspect.getsource(WindowManager.window_consumed)
    assert consumed.count("self.") == 2, "the window, and whether it is below 0"
