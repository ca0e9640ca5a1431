"""Streams of appends, of both protocols, whose requests are hostile, and what is answered."""

from collections.abc import Iterable, Iterator

from broker.model.failure import StreamingCode
from schemas.batches import NotLanded, scan_append_response
from schemas.encoding.frames import frame
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.create_headers import create_header
from tests.limits.hostile.attack import Got, Target
from tests.limits.hostile.hostile_caller import Headers, HostileCall, call_on

APPEND = "/tidemark.v1.Log/Append"
PRODUCE = "/milvus.proto.streaming.StreamingNodeHandlerService/Produce"


def producing(pchannel: str, term: int) -> Headers:
    """The metadata of a stream of appends."""
    return ((CREATE_PRODUCER, create_header(CreateHeader(pchannel, term))),)


async def append_batches(target: Target, got: Got, requests: Iterable[bytes]) -> None:
    """Send these AppendRequests."""
    await _send(target, got, APPEND, requests)


async def produce(target: Target, got: Got, requests: Iterable[bytes]) -> None:
    """Send these ProduceRequests."""
    await _send(target, got, PRODUCE, requests)


async def _send(target: Target, got: Got, path: str, requests: Iterable[bytes]) -> None:
    frames = map(frame, requests)
    read = batch_answer if path == APPEND else produced_answer

    def calls() -> Iterator[HostileCall]:
        while True:
            yield HostileCall(path, frames, producing(target.pchannel, target.term), read)

    await call_on(target, got, calls(), at_once=1)


def batch_answer(data: bytes) -> str:
    """What an AppendResponse says; "" for the greeting."""
    answer = scan_append_response(data)
    if answer is None:
        return ""
    return f"batch {StreamingCode(answer.code).name}" if isinstance(answer, NotLanded) else "stored"


def produced_answer(data: bytes) -> str:
    """What a ProduceResponse says; "" for what is no result."""
    answer = scan_produce_response(data)
    if isinstance(answer, ProduceFailed):
        return f"message {StreamingCode(answer.code).name}"
    return "stored" if isinstance(answer, Produced) else ""
