"""One Append stream of `tidemark.v1.Log`: batches out, answers in the same order.

It owns the order alone: an answer carries no number, it belongs to the oldest batch without one.
All else is as on a Produce stream.
Next: broker/edge/tidemark/append_batches.py
"""

from collections import deque

from broker.client.append.numbered_outbox import NumberedOutbox
from broker.client.append.produce_stream import ProduceStream
from broker.client.errors import ProtocolBroken
from schemas.batches import Landed, scan_append_response
from schemas.encoding.frames import frame_head
from schemas.wire import ProduceAnswer, Produced, ProduceFailed

APPEND = "/tidemark.v1.Log/Append"


class BatchFailed(ProduceFailed):
    """A batch was refused; `expected_sequence` counts when its number was."""

    expected_sequence: int = 0


class AppendStream(ProduceStream):
    """Use once, as a ProduceStream."""

    path = APPEND
    goodbye = b""
    _sent: deque[int]

    def _accepts(self, first: bytes) -> bool:
        self._sent = deque()
        return not first

    def _framed(self, requests: list[tuple[int, bytes]]) -> bytes:
        assert isinstance(self._outbox, NumberedOutbox)
        parts: list[bytes] = []
        for request_id, request in requests:
            self._sent.append(request_id)
            stamp = self._outbox.stamp_of(request_id)
            parts += (frame_head(len(stamp) + len(request)), stamp, request)
        return b"".join(parts)

    def _answer(self, message: bytes) -> ProduceAnswer | None:
        answer = scan_append_response(message)
        if answer is None or not self._sent:
            raise ProtocolBroken(f"{self._location.address}: an answer to no batch")
        request_id = self._sent.popleft()
        if isinstance(answer, Landed):
            place = answer.message_id, answer.tick, answer.last_confirmed_id
            return Produced(request_id, *place, durability=answer.durability)
        failed = BatchFailed(request_id, answer.code, answer.cause)
        failed.expected_sequence = answer.expected_sequence
        return failed
