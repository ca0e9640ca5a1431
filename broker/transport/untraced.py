# ruff: noqa: SLF001 - this package is the one that may know h2's inside (see its docstring)
"""HTTP/2 frames of data that h2 does not spell out.

Owns nothing. Before it looks at a frame, h2 makes a text of it, hexadecimal payload and all, for a
tracer that nobody has attached: 0.15 ms of a body of 100 kB, more than all else that is done there.
"""

from h2.connection import H2Connection
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import DataFrame, Frame


class UntracedData(DataFrame):
    """A DATA frame that says nothing of what it holds."""

    def __repr__(self) -> str:
        return f"DATA of stream {self.stream_id}"


class UntracedFrames(FrameBuffer):
    """h2's buffer of arriving bytes, which gives DATA frames as `UntracedData`."""

    def _update_header_buffer(self, f: Frame | None) -> Frame | None:
        found = super()._update_header_buffer(f)
        if found.__class__ is DataFrame:
            found.__class__ = UntracedData
        return found


def untrace(connection: H2Connection) -> None:
    """Have the connection give no text of data. Before any byte has arrived on it."""
    replaced = connection.incoming_buffer
    assert not replaced._data, "bytes have arrived already"
    frames = UntracedFrames(server=not connection.config.client_side)
    frames.max_frame_size = replaced.max_frame_size
    connection.incoming_buffer = frames
    handlers = connection._frame_dispatch_table
    handlers[UntracedData] = handlers[DataFrame]
