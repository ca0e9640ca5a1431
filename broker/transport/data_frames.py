# ruff: noqa: SLF001 - this package is the one that may know h2's inside (see its docstring)
"""HTTP/2 frames of data on their way out, without the detours that h2 makes with them.

Owns nothing. h2 copies what it sends five times on its way to the socket and asks two state
machines that do not change; here it is copied twice.
Next: broker/transport/streams.py
"""

from struct import Struct

from h2.connection import ConnectionState, H2Connection
from h2.stream import StreamState

_HEAD = Struct(">BHBBL")
_DATA, _NO_FLAGS = 0x0, 0x0
_SENDING = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE})


def put_data(connection: H2Connection, stream_id: int, data: memoryview) -> bool:
    """Put `data` among what the connection has to send, as h2's `send_data` would.

    It must fit the windows. False, and nothing is done, when the stream takes no data any more.
    """
    stream = connection.streams.get(stream_id)
    if stream is None or stream.state_machine.state not in _SENDING:
        return False
    if connection.state_machine.state is ConnectionState.CLOSED:
        return False
    size, frame_bytes_max = len(data), connection.max_outbound_frame_size
    assert size <= connection.local_flow_control_window(stream_id), "it was not waited for"
    unsent = connection._data_to_send
    for start in range(0, size, frame_bytes_max):
        part = data[start : start + frame_bytes_max]
        length = len(part)
        unsent += _HEAD.pack(length >> 16, length & 0xFFFF, _DATA, _NO_FLAGS, stream_id)
        unsent += part
    stream.outbound_flow_control_window -= size
    connection.outbound_flow_control_window -= size
    return True
