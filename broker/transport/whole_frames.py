# ruff: noqa: SLF001 - this package is the one that may know h2's inside (see its docstring)
"""Splits what arrives on a connection into DATA for the fast path and whole frames for h2.

A peer such as grpc-go sends a DATA frame for each message, pings and window updates between them,
and what one read brings ends inside a frame. If h2 got more than the frames that only it
understands, it would take the messages behind them too, at ten times the cost.

A large DATA frame is passed on in the parts in which it arrives, as if its sender had made a frame
of each: so its bytes are not copied to make it whole.
"""

from collections.abc import Callable, Mapping

from grpclib.protocol import Stream
from h2.connection import H2Connection

from broker.transport.data_frames import take_data, take_part, take_rest
from broker.transport.frame_costs import FRAMES_AT_ONCE, cost_of
from schemas.encoding.data_frames import DATA, HEAD_BYTES, frame_end

PART_BYTES_MIN = 16 * 1024
"""Less of an unfinished frame is kept: an object for every two bytes takes 28 times their size."""


class WholeFrames:
    """What arrives on one connection. `to_h2` gets whole frames, and may close the connection."""

    __slots__ = (
        "_connection", "_frame_bytes_max", "_frames", "_kept", "_may_go_on", "_missing", "_rest",
        "_stream_id", "_streams", "_to_h2", "_units", "held",
    )  # fmt: skip

    def __init__(
        self,
        connection: H2Connection,
        streams: Mapping[int, Stream],
        to_h2: Callable[[bytes], bool],
        frame_bytes_max: int,
        may_go_on: Callable[[int, int], bool] | None = None,
    ) -> None:
        """`to_h2` returns whether the connection is still open.

        `may_go_on` is told what frames for h2 have cost (see `frame_costs`), and their number. When
        it says no, the bytes behind them are left in `held`, which else is None: give them to
        `receive` later.
        """
        self._connection = connection
        self._streams = streams
        self._to_h2 = to_h2
        self._frame_bytes_max = frame_bytes_max
        # Not a list of what was read: see PART_BYTES_MIN.
        self._kept = bytearray()
        self._may_go_on = may_go_on
        self._units = self._frames = 0
        self.held: bytes | None = None
        self._missing = 0
        # Of the DATA frame that is being passed on in parts: its stream, and what is to come.
        self._stream_id = self._rest = 0

    @property
    def unfinished(self) -> bool:
        """Whether a frame has begun that is not here whole."""
        return bool(self._kept or self._rest)

    def take_held(self) -> bytes:
        """What is to be received before all others, which may be nothing."""
        held, self.held = self.held, None
        return held or b""

    def receive(self, data: bytes) -> bool:
        """Pass on every frame that is complete now; returns whether there was one."""
        if self._kept:
            self._kept += data
            self._missing -= len(data)
            if self._missing > 0:
                return False
            # Copied once per frame, not once per read: large frames stay linear.
            data = bytes(self._kept)
            self._kept.clear()
        elif self._connection.incoming_buffer._data:
            # The rest of an oversize frame: to read it as frames would show h2 a part of it only.
            self._to_h2(data)
            return False
        elif self._rest:
            data = self._continue(data)
            if self.unfinished:
                return False
            if not data:
                return True
        return self._pass_on(data)

    def _pass_on(self, data: bytes) -> bool:
        at = self._preface(data)
        while at < len(data):
            after = take_data(self._connection, self._streams, data, at)
            stop = self._stop(data, after)
            if stop > after:
                if not self._to_h2(data[after:stop]):
                    return True
                if not self._paid():
                    self.held = data[stop:]
                    return True
            if stop == at:
                self._begin(data, at)
                return at > 0
            at = stop
        return True

    def _paid(self) -> bool:
        units, frames = self._units, self._frames
        self._units = self._frames = 0
        return self._may_go_on is None or self._may_go_on(units, frames)

    def _preface(self, data: bytes) -> int:
        """Pass on what is missing of the client's preface, which is no frame; where it ends."""
        size = min(len(data), int(self._connection.incoming_buffer._preamble_len))
        if size and not self._to_h2(data[:size]):
            return len(data)
        return size

    def _stop(self, data: bytes, at: int) -> int:
        """Where the frames for h2 end: the one at `at`, and those behind it that are no DATA."""
        end = len(data)
        stop = at
        while end - stop >= HEAD_BYTES and (stop == at or data[stop + 3] != DATA):
            if self._frames == FRAMES_AT_ONCE:
                break
            after = frame_end(data, stop)
            if after - stop - HEAD_BYTES > self._frame_bytes_max:
                return end  # h2 refuses it, once all of it has arrived
            if after > end:
                break
            self._units += cost_of(data, stop, after)
            self._frames += 1
            stop = after
        return stop

    def _begin(self, data: bytes, at: int) -> None:
        """Pass on what is here of the unfinished frame at `at`, or keep it."""
        if len(data) - at - HEAD_BYTES >= PART_BYTES_MIN:
            self._stream_id, self._rest = take_part(self._connection, self._streams, data, at)
        if not self._rest:
            self._keep(data[at:])

    def _continue(self, data: bytes) -> bytes:
        """Take `data` for the frame that is passed on in parts; returns what lies behind it."""
        part = data[: self._rest]
        if len(part) < min(self._rest, PART_BYTES_MIN):
            # From here on as a frame of its own that has just begun.
            self._keep(_data_head(self._rest, self._stream_id) + part)
            self._rest = 0
            return b""
        self._rest -= len(part)
        if not take_rest(self._connection, self._streams, self._stream_id, part):
            # The stream has ended meanwhile: h2 gives the bytes back to the connection.
            self._to_h2(_data_head(len(part), self._stream_id) + part)
        return data[len(part) :]

    def _keep(self, rest: bytes) -> None:
        self._kept += rest
        wanted = frame_end(rest, 0) if len(rest) >= HEAD_BYTES else HEAD_BYTES
        if len(rest) < HEAD_BYTES + PART_BYTES_MIN:
            # Then the frame may be passed on in parts, or is kept until it is whole.
            wanted = min(wanted, HEAD_BYTES + PART_BYTES_MIN)
        self._missing = wanted - len(rest)


def _data_head(size: int, stream_id: int) -> bytes:
    return size.to_bytes(3, "big") + bytes((DATA, 0)) + stream_id.to_bytes(4, "big")
