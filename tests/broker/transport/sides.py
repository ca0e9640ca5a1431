"""One end of a connection, whose bytes go the fast path or all to h2."""

from collections.abc import Callable
from typing import Any, cast

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingReceived
from h2.exceptions import ProtocolError
from hyperframe.frame import DataFrame

from broker.transport.whole_frames import WholeFrames

KNOWN, COUNTED, NEW, RESERVED_BIT = 1, 3, 9, 1 << 31
"""Streams: plain ones, one whose length was announced, one that nobody opened."""
ANNOUNCED_BYTES = 20_000
REQUEST = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "here")]
RESPONSE = [(":status", "200")]


class Accepting(AbstractHandler):
    """Takes every call and reads nothing."""

    def accept(
        self, stream: Stream, headers: object, release_stream: Callable[[], None]
    ) -> None: ...

    def cancel(self, stream: Stream) -> None: ...

    def close(self) -> None: ...


class Side:
    """One end of a connection, and what came to its streams."""

    def __init__(self, *, ours: bool, client: bool, frame_bytes_max: int = 16_384) -> None:
        self._ours = ours
        self.h2 = H2Connection(H2Configuration(client_side=client, header_encoding="ascii"))
        self._peer = H2Connection(H2Configuration(client_side=not client))
        connection = Connection(self.h2, cast(Any, self), config=Configuration())
        self._processor = EventsProcessor(Accepting(), connection)
        self._all: dict[int, Stream] = {}
        self.failure: type[Exception] | None = None
        self.h2_bytes = 0
        self._frames = WholeFrames(self.h2, self._processor.streams, self._to_h2, frame_bytes_max)
        self.pings = 0
        for each in (self.h2, self._peer):
            each.initiate_connection()
        self._open(client=client)
        self.h2.max_inbound_frame_size = frame_bytes_max
        self.h2.incoming_buffer.max_frame_size = frame_bytes_max

    def _open(self, *, client: bool) -> None:
        announced = [("content-length", str(ANNOUNCED_BYTES))]
        caller, answerer = (self.h2, self._peer) if client else (self._peer, self.h2)
        for number in (KNOWN, COUNTED, COUNTED + 2):
            caller.send_headers(number, REQUEST + (announced if number == COUNTED else []))
        for _ in range(2):
            self.receive(self._peer.data_to_send())
            self._peer.receive_data(self.h2.data_to_send())
        answerer.send_headers(KNOWN, RESPONSE)
        answerer.send_headers(COUNTED, RESPONSE + announced)
        if client:
            for number in (KNOWN, COUNTED, COUNTED + 2):
                self._add(number)
            self.receive(self._peer.data_to_send())
        self.h2.clear_outbound_data_buffer()

    def _add(self, number: int) -> None:
        stream = self._processor.connection.create_stream(stream_id=number)
        self._processor.register(stream)

    def receive(self, data: bytes) -> None:
        if self.failure is not None:
            return
        if self._ours:
            self._frames.receive(data)
        else:
            self._to_h2(data)

    def _to_h2(self, data: bytes) -> bool:
        try:
            events = self.h2.receive_data(data)
        except ProtocolError as error:
            self.failure = type(error)
            return False
        self.h2_bytes += len(data)
        for event in events:
            self.pings += isinstance(event, PingReceived)
            if event.__class__ in self._processor.processors:
                self._processor.process(event)
        self._all |= self._processor.streams
        return True

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None: ...

    def came(self) -> dict[int, tuple[bytes, int]]:
        """To each stream: the bytes, and what its peer's window was narrowed by for them."""
        found = {}
        for number, stream in self._all.items():
            queued = list(cast(Any, stream.buffer._unacked)._queue)
            found[number] = (
                b"".join([it.data for it in queued]),
                sum(it.ack_size for it in queued),
            )
        return found

    def state(self) -> tuple[object, ...]:
        """All that h2 has in mind."""
        streams = {
            number: (
                stream.state_machine.state,
                stream._inbound_window_manager.current_window_size,
                stream._inbound_window_manager._bytes_processed,
                stream._actual_content_length,
            )
            for number, stream in self.h2.streams.items()
        }
        window = self.h2._inbound_flow_control_window_manager.current_window_size
        waiting = bytes(self.h2.incoming_buffer._data) + bytes(self._frames._kept)
        unsent = bytes(self.h2._data_to_send)
        return streams, window, waiting, unsent, self.h2.state_machine.state, self.pings


def plain(stream_id: int, size: int) -> bytes:
    return DataFrame(stream_id, bytes(range(256)) * (size // 256) + bytes(size % 256)).serialize()
