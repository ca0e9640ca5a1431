"""One call of a grpc-go client: its messages in both directions, and its windows."""

from collections import deque
from collections.abc import Callable

from benchmark.grpc_go.messages import DATA, FRAME_BYTES_MAX, http_frame
from benchmark.grpc_go.windows import StreamWindow
from schemas.encoding.frames import frame

QUEUED_BYTES_MAX = 64 * 1024
"""A program's `Send` waits while so much is queued."""
PREFIX_BYTES = 5


class Stream:
    """Queues messages for the connection's writer, and cuts what arrives into messages."""

    def __init__(
        self,
        number: int,
        received: Callable[[bytes], None],
        has_work: Callable[[], None],
        windows: tuple[int, int],
    ) -> None:
        """`windows`: of what arrives, and of what is sent."""
        self.id = number
        self.window = StreamWindow(windows[0])
        self.send_window = windows[1]
        self.on_room: Callable[[], None] = _nothing
        """Called when `send` may take more."""
        self.on_error: Callable[[Exception], None] = _ignored
        self._received = received
        self._has_work = has_work
        self._queue: deque[bytes] = deque()
        self._room = QUEUED_BYTES_MAX
        self._prefix = bytearray()
        self._body = bytearray()
        self._wanted = -1
        self._increments: list[int] = []

    @property
    def has_room(self) -> bool:
        """Whether `Send` would return at once; `on_room` is called when that changes."""
        return self._room > 0

    def send(self, message: bytes) -> None:
        """Queue a message, which may exceed the room that there is."""
        self._room -= PREFIX_BYTES + len(message)
        self._queue.append(frame(message))
        self._has_work()

    def next_frame(self, window: int) -> bytes | None:
        """The next DATA frame; None when nothing waits or the window of the connection is shut."""
        size = min(window, self.send_window, FRAME_BYTES_MAX)
        if not self._queue or size <= 0:
            return None
        message = self._queue.popleft()
        if len(message) > size:
            self._queue.appendleft(message[size:])
        payload = message[:size]
        self._room += len(payload)
        self.send_window -= len(payload)
        # The program's own goroutine continues as soon as there is room.
        self.on_room()
        return http_frame(DATA, payload, stream=self.id)

    def arrived(self, data: bytes) -> list[int]:
        """Hand out the messages in it; returns the increments for the window of this stream."""
        self.window.on_data(len(data))
        self._increments.clear()
        at = 0
        while at < len(data):
            if self._wanted < 0:
                at += self._read_prefix(data[at : at + PREFIX_BYTES - len(self._prefix)])
            else:
                at += self._read_body(data[at : at + self._wanted - len(self._body)])
            if self._wanted == len(self._body):
                message = bytes(self._body)
                self._prefix.clear()
                self._body.clear()
                self._wanted = -1
                self._received(message)
        return [it for it in self._increments if it]

    def _read_prefix(self, piece: bytes) -> int:
        if not self._prefix:
            self._increments.append(self.window.before_read(PREFIX_BYTES))
        self._prefix += piece
        self._increments.append(self.window.after_read(len(piece)))
        if len(self._prefix) == PREFIX_BYTES:
            self._wanted = int.from_bytes(self._prefix[1:], "big")
            self._increments.append(self.window.before_read(self._wanted))
        return len(piece)

    def _read_body(self, piece: bytes) -> int:
        self._body += piece
        self._increments.append(self.window.after_read(len(piece)))
        return len(piece)

    def failed(self, error: Exception) -> None:
        """Report that nothing more will come."""
        self.on_error(error)


def _nothing() -> None:
    pass


def _ignored(_error: Exception) -> None:
    pass
