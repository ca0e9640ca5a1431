"""What is too large is refused where it stands, and costs a real broker process no memory."""

import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from broker.client import Unrecoverable, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import MessageTooLarge
from broker.model.failure import StreamingCode
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from schemas.status import read_status_details
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.broker_process import BrokerProcess, FreshBrokerProcess
from tests.create_headers import create_header
from tests.wire.peer import BIG, Peer, append
from tests.wire.raw_peer import RawCall, raw
from tests.wire.small_broker import P0, PRODUCE, V0

MIB = 1024 * 1024
TRIES = 10
DECLARED_BYTES = 200_000_000
SENT_BYTES = 64 * MIB - 4096
FRAME_BYTES_MAX = 16 * MIB
"""The default limit. A server that gathered a body up to it before refusing would grow by this; the
window of 2 MiB and its copies while it is looked through stay well below."""
MANY_TRIES, COPIES_MAX = 30, 7
"""Of a message whose frame is allowed 4 to 6 copies are seen while it is taken apart; if refused
ones added up there would be 30."""

told = logging.getLogger("tests.limits")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with FreshBrokerProcess(tmp_path / "data", pchannels="1") as running:
        yield running
        assert running.terminate() == 0


@asynccontextmanager
async def peer_of(broker: BrokerProcess) -> AsyncIterator[tuple[Peer, int]]:
    """grpcio, and the term of the only pchannel."""
    async with (
        connect(broker.address) as log,
        grpc.aio.insecure_channel(broker.address, options=BIG) as channel,
    ):
        await log.append(NewVChannel(V0), b"warm")
        yield Peer(channel), (await log.admin.channels())[0].term


async def test_a_declared_length_is_refused_before_memory_is_taken(broker: BrokerProcess) -> None:
    async with peer_of(broker) as (_, term):
        before = broker.peak_bytes()
        for _ in range(TRIES):
            async with raw(broker) as peer:
                create = (CREATE_PRODUCER, create_header(CreateHeader(P0, term)))
                call = RawCall(peer, PRODUCE, [create])
                await call.open()
                await call.send(b"\0" + DECLARED_BYTES.to_bytes(4, "big") + bytes(16384))
                assert code_of(await call.until_ended()) == (9, StreamingCode.UNRECOVERABLE)
        assert grown_by(broker, before, "200 MB declared") < 2 * MIB


async def test_a_body_far_over_the_limit_is_refused_while_it_comes(broker: BrokerProcess) -> None:
    async with peer_of(broker) as (peer, term):
        before = broker.peak_bytes()
        stream = peer.produce(term)
        await stream.receive()
        for request in range(TRIES):
            await stream.send(append(2 * request + 1, bytes(SENT_BYTES)), append(2 * request + 2))
            answers = [scan_produce_response(await stream.receive()) for _ in range(2)]
            refused = [it for it in answers if isinstance(it, ProduceFailed)]
            assert [it.code for it in refused] == [StreamingCode.UNRECOVERABLE]
            assert sum(isinstance(it, Produced) for it in answers) == 1
        stream.call.cancel()
        assert grown_by(broker, before, "64 MiB sent") < FRAME_BYTES_MAX


async def test_a_message_over_the_limit_is_refused_alone_and_its_stream_goes_on(
    broker: BrokerProcess,
) -> None:
    async with peer_of(broker) as (peer, term):
        before = broker.peak_bytes()
        stream = peer.produce(term)
        await stream.receive()
        for request in range(MANY_TRIES):
            await stream.send(append(2 * request, bytes(9 * MIB)), append(2 * request + 1))
            answers = [scan_produce_response(await stream.receive()) for _ in range(2)]
            refused = [it for it in answers if isinstance(it, ProduceFailed)]
            assert [it.code for it in refused] == [StreamingCode.UNRECOVERABLE]
            assert sum(isinstance(it, Produced) for it in answers) == 1
        stream.call.cancel()
        assert grown_by(broker, before, "messages of 9 MiB") < COPIES_MAX * 9 * MIB


async def test_the_client_names_the_limit_that_was_crossed(broker: BrokerProcess) -> None:
    async with connect(broker.address) as log:
        with pytest.raises(Unrecoverable, match="8388608"):
            await log.append(NewVChannel(V0), bytes(9 * MIB))
        with pytest.raises(MessageTooLarge, match="at most"):
            await log.append(NewVChannel(V0), bytes(64 * MIB))
        await log.append(NewVChannel(V0), bytes(7 * MIB))


def grown_by(broker: BrokerProcess, before: int, what: str) -> int:
    grown = broker.peak_bytes() - before
    told.info("%s: %.1f MB more at the peak", what, grown / 1e6)
    return grown


def code_of(trailers: dict[str, str]) -> tuple[int, StreamingCode]:
    text = trailers["grpc-status-details-bin"]
    error = read_status_details(base64.b64decode(text + "=" * (-len(text) % 4)))
    assert error is not None
    return int(trailers["grpc-status"]), StreamingCode(error.code)
