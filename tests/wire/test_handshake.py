"""How a stream is let in or turned away: every row of the tables of headers, terms and codes."""

import base64

import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.wire import Closed, Created, scan_consume_response, scan_produce_response
from tests.create_headers import create_header
from tests.wire.peer import Ended, Peer, PeerStream
from tests.wire.raw_peer import RawCall, raw
from tests.wire.small_broker import CONSUME, FIRST_TERM, P0, PRODUCE, SmallBroker

FAILED_PRECONDITION, INVALID = 9, 3
STREAMS = pytest.mark.parametrize(
    ("path", "key"), [(PRODUCE, CREATE_PRODUCER), (CONSUME, CREATE_CONSUMER)]
)
RIGHT = create_header(CreateHeader(P0, FIRST_TERM))


async def refusal(stream: PeerStream) -> tuple[int, Code]:
    with pytest.raises(Ended) as caught:
        await stream.receive()
    assert caught.value.error is not None, "the details are missing"
    assert caught.value.error.cause, "a cause says what was wrong"
    return caught.value.code, Code(caught.value.error.code)


@STREAMS
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "not base64!",
        RIGHT[:-1],
        base64.b64encode(b"\xff\xff\xff").decode(),
        base64.b64encode(b"").decode(),
        create_header(CreateHeader("", FIRST_TERM)),
        create_header(CreateHeader(P0, 0)),
        create_header(CreateHeader(P0, -1)),
        create_header(CreateHeader(P0, FIRST_TERM, 7)),
    ],
    ids=[
        "missing", "empty", "no base64", "no padding", "no proto", "no pchannel", "no name",
        "term 0", "negative term", "unknown access mode",
    ],
)  # fmt: skip
async def test_a_bad_create_header_is_an_invalid_argument(
    peer: Peer, path: str, key: str, value: str | None
) -> None:
    stream = peer.open(path, {} if value is None else {key: value})
    assert await refusal(stream) == (INVALID, Code.INVALID_ARGUMENT)


@STREAMS
@pytest.mark.parametrize(
    ("header", "code"),
    [
        (CreateHeader("by-dev-rootcoord-dml_9", FIRST_TERM), Code.CHANNEL_NOT_EXIST),
        (CreateHeader(P0, FIRST_TERM - 1), Code.UNMATCHED_CHANNEL_TERM),
        (CreateHeader(P0, FIRST_TERM + 1), Code.UNMATCHED_CHANNEL_TERM),
    ],
)
async def test_a_channel_that_is_not_served_here_is_refused_with_its_code(
    peer: Peer, path: str, key: str, header: CreateHeader, code: Code
) -> None:
    stream = peer.open(path, {key: create_header(header)})
    assert await refusal(stream) == (FAILED_PRECONDITION, code)


@STREAMS
@pytest.mark.parametrize("metadata", [{"cluster": "other"}, {"serverid": "2"}, {"serverid": "-1"}])
async def test_a_call_for_another_cluster_or_server_is_an_ignored_operation(
    peer: Peer, path: str, key: str, metadata: dict[str, str]
) -> None:
    stream = peer.open(path, {key: RIGHT, **metadata})
    assert await refusal(stream) == (FAILED_PRECONDITION, Code.IGNORED_OPERATION)


@STREAMS
@pytest.mark.parametrize(
    "metadata",
    [
        {"cluster": "by-dev"},
        {"cluster": ""},
        {"serverid": "1"},
        {"serverid": "what"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    ],
)
async def test_a_call_for_this_cluster_and_server_is_accepted(
    peer: Peer, path: str, key: str, metadata: dict[str, str]
) -> None:
    stream = peer.open(path, {key: RIGHT, **metadata})
    assert await stream.receive() == b"\x0a\x09\x0a\x07rocksmq"


async def test_only_the_first_value_of_a_header_counts(peer: Peer) -> None:
    twice = (("cluster", "by-dev"), ("cluster", "other"), (CREATE_PRODUCER, RIGHT))
    stream = PeerStream(peer.channel.stream_stream(PRODUCE)(metadata=twice))
    assert await stream.receive()


async def test_a_producer_needs_read_write_access_and_a_consumer_does_not(peer: Peer) -> None:
    read_only = create_header(CreateHeader(P0, FIRST_TERM, 1))
    refused = peer.open(PRODUCE, {CREATE_PRODUCER: read_only})
    assert await refusal(refused) == (INVALID, Code.INVALID_ARGUMENT)
    assert await peer.open(CONSUME, {CREATE_CONSUMER: read_only}).receive()


async def test_the_first_message_comes_without_waiting_for_the_client(peer: Peer) -> None:
    produce, consume = peer.produce(), peer.consume()
    assert scan_produce_response(await produce.receive()) == Created("rocksmq", 0)
    assert scan_consume_response(await consume.receive()) == Created("rocksmq", 0)


async def test_a_stream_that_closes_at_once_gets_close_and_ok(peer: Peer) -> None:
    for stream, scan in (
        (peer.produce(), scan_produce_response),
        (peer.consume(), scan_consume_response),
    ):
        await stream.half_close()
        await stream.receive()
        assert scan(await stream.receive()) == Closed()
        assert await stream.status() == (grpc.StatusCode.OK.value[0], None)


async def test_an_unknown_method_is_unimplemented(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call("/milvus.proto.streaming.StreamingNodeHandlerService/Nothing", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("path", [f"{PRODUCE}Nothing", "/no.such.Service/Method"])
async def test_an_unknown_method_is_answered_as_grpc_and_not_as_bare_http(
    broker: SmallBroker, path: str
) -> None:
    """Strict clients take an answer without this content type for a broken proxy: UNKNOWN."""
    async with raw(broker) as peer:
        call = RawCall(peer, path, [])
        await call.open()
        answer = await call.until_ended()
    assert answer["content-type"].startswith("application/grpc")
    assert answer["grpc-status"] == str(grpc.StatusCode.UNIMPLEMENTED.value[0])
