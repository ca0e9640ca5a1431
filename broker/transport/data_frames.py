# ruff: noqa: SLF001 - this package is the one that may know h2's inside (see its docstring)
"""Fast path for HTTP/2 DATA frames, out and in, that bypasses h2's copies and events.

h2 copies what it sends five times and asks two state machines that do not change; here the socket
gets views of it. h2 copies what arrives four times and makes flags, a text and an event of each
frame; here it is copied once. Anything unusual is left to h2.
"""

from collections.abc import Mapping
from struct import Struct

from grpclib.protocol import Stream
from h2.connection import ConnectionState, H2Connection
from h2.stream import StreamState

from schemas.encoding.data_frames import DATA, HEAD_BYTES, frame_end, plain_data

# HTTP/2's frame header: 24 bits of length in two parts, type, flags, stream.
_HEAD = Struct(">BHBBL")
_NO_FLAGS = 0x0
# Either side may half-close first, so one half-closed state still sends and the other still takes.
_SENDING = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE})
_TAKING = (StreamState.OPEN, StreamState.HALF_CLOSED_LOCAL)
_UP = (ConnectionState.CLIENT_OPEN, ConnectionState.SERVER_OPEN)


def send_window(connection: H2Connection, stream_id: int) -> int | None:
    """Bytes that may be sent now, 0 or less for none; None when the stream is closed."""
    stream = connection.streams.get(stream_id)
    if stream is None or stream.state_machine.state not in _SENDING:
        return None
    if connection.state_machine.state is ConnectionState.CLOSED:
        return None
    # HTTP/2 counts DATA against the stream's window and the connection's: the smaller one holds.
    return min(stream.outbound_flow_control_window, connection.outbound_flow_control_window)


def data_frames(
    connection: H2Connection, stream_id: int, data: memoryview
) -> list[bytes | memoryview] | None:
    """The DATA frames of `data` for the socket, counted as sent as h2's `send_data` would.

    What h2 has queued must go before them. `data` must fit the windows. None, and nothing is
    counted, when the stream is closed.
    """
    stream = connection.streams.get(stream_id)
    if stream is None or stream.state_machine.state not in _SENDING:
        return None
    if connection.state_machine.state is ConnectionState.CLOSED:
        return None
    size, frame_bytes_max = len(data), connection.max_outbound_frame_size
    window = min(stream.outbound_flow_control_window, connection.outbound_flow_control_window)
    assert size <= window, "the caller did not wait for the window"
    found: list[bytes | memoryview] = []
    for start in range(0, size, frame_bytes_max):
        part = data[start : start + frame_bytes_max]
        length = len(part)
        found += (_HEAD.pack(length >> 16, length & 0xFFFF, DATA, _NO_FLAGS, stream_id), part)
    stream.outbound_flow_control_window -= size
    connection.outbound_flow_control_window -= size
    return found


def take_data(
    connection: H2Connection, streams: Mapping[int, Stream], data: bytes, at: int = 0
) -> int:
    """Pass the DATA frames from `data[at]` on to their `streams`; returns where they end.

    Does what h2's `receive_data` and grpclib's events would. Stops before anything but a whole,
    plain DATA frame that its stream may receive: pass h2 that frame, which reports what is wrong.
    """
    waiting = connection.incoming_buffer
    # h2 is inside the handshake, a frame or a header block, which these bytes continue.
    if waiting._data or waiting._preamble_len or waiting._headers_buffer:
        return at
    if connection.state_machine.state not in _UP:
        return at
    end = len(data)
    while end - at > HEAD_BYTES:
        stream_id = int.from_bytes(data[at + 5 : at + HEAD_BYTES], "big")
        stream = streams.get(stream_id)
        window = _window(connection, stream_id)
        if stream is None or not window:
            break
        contents, size, stop = plain_data(data, at, connection.max_inbound_frame_size, window)
        if not contents:
            break
        _count(connection, stream_id, size)
        # Joined here: a peer may send a frame for each message.
        stream.buffer.add(contents[0] if len(contents) == 1 else b"".join(contents), size)
        at = stop
    return at


def take_part(
    connection: H2Connection, streams: Mapping[int, Stream], data: bytes, at: int
) -> tuple[int, int]:
    """Pass on what is here of a plain DATA frame at `data[at]` that is not here whole.

    Returns its stream and how much of it is still to come, which is to be taken as a frame of that
    size: frames of DATA may be divided. A rest of 0 means that nothing was passed on, because h2
    may object to the frame. `take_data` must have stopped at it.
    """
    rest = frame_end(data, at) - len(data)
    stream_id = int.from_bytes(data[at + 5 : at + HEAD_BYTES], "big")
    if (
        data[at + 3] != DATA
        or data[at + 4]
        or frame_end(data, at) - at - HEAD_BYTES
        > min(connection.max_inbound_frame_size, _window(connection, stream_id))
    ):
        return stream_id, 0
    taken = take_rest(connection, streams, stream_id, data[at + HEAD_BYTES :])
    return stream_id, rest if taken else 0


def take_rest(
    connection: H2Connection, streams: Mapping[int, Stream], stream_id: int, part: bytes
) -> bool:
    """Pass on a part of a frame; False, and nothing done, when the stream may not receive it."""
    stream, size = streams.get(stream_id), len(part)
    if stream is None or connection.state_machine.state not in _UP:
        return False
    if size > _window(connection, stream_id):
        return False
    _count(connection, stream_id, size)
    stream.buffer.add(part, size)
    return True


def _window(connection: H2Connection, stream_id: int) -> int:
    """Bytes that the peer may send on the stream; 0 also where h2 might object."""
    stream = connection.streams.get(stream_id)
    # With a content-length h2 raises for a body of another size; without one it only counts.
    if stream is None or stream._expected_content_length is not None:
        return 0
    state = stream.state_machine
    if state.state not in _TAKING or not state.headers_received:
        return 0
    # Over a window is a protocol error, which h2 answers with GOAWAY.
    return max(
        0,
        min(
            connection._inbound_flow_control_window_manager.current_window_size,
            stream._inbound_window_manager.current_window_size,
        ),
    )


def _count(connection: H2Connection, stream_id: int, size: int) -> None:
    """Count `size` bytes of data as h2 would."""
    stream = connection.streams[stream_id]
    connection._inbound_flow_control_window_manager.current_window_size -= size
    stream._inbound_window_manager.current_window_size -= size
    stream._actual_content_length += size


def processed(connection: H2Connection, stream_id: int, size: int) -> bool:
    """Count data as processed, when no window update is due, which is the common case.

    False, and nothing done, when it is time for h2's `acknowledge_received_data`.
    """
    stream = connection.streams.get(stream_id)
    if stream is None:
        return False
    of_all, its_own = (
        connection._inbound_flow_control_window_manager,
        stream._inbound_window_manager,
    )
    for window in (of_all, its_own):
        done_bytes = window._bytes_processed + size
        # Where h2 may send WINDOW_UPDATE: half the window was processed, or the peer has none left.
        if not window.current_window_size or done_bytes >= window.max_window_size // 2:
            return False
    of_all._bytes_processed += size
    its_own._bytes_processed += size
    return True
