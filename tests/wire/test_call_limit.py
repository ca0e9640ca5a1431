"""Too many calls of one identity, in gRPC's words: what grpcio and our client make of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from broker.client import Deadlines, connect
from broker.client.errors import DeadlineExceeded, RateLimited
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from broker.core.pressure.limit_rules import parsed_limits
from broker.edge.rpc.failures import PUSHBACK
from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.controlled import SECRET, controlled
from tests.wire.peer import ANSWER_S, DETAILS, Peer, PeerStream, connected, ended
from tests.wire.small_broker import SmallBroker, small_broker

HEALTH, CHECK = "/tidemark.v1.Admin/Health", "/grpc.health.v1.Health/Check"
CLUSTER = "by-dev"
RETRIES = {
    "name": [{}],
    "retryPolicy": {
        "maxAttempts": 5,
        "initialBackoff": "0.001s",
        "maxBackoff": "0.001s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    },
}
"""Of every method."""


@asynccontextmanager
async def world(limits: str) -> AsyncIterator[tuple[SmallBroker, Peer]]:
    async with small_broker() as broker, connected(broker) as peer:
        broker.edge.limit_rates(parsed_limits(limits))
        yield broker, peer


async def until_refused(peer: Peer) -> grpc.aio.AioRpcError:
    """Calls at once, until one is refused."""
    with anyio.fail_after(ANSWER_S):
        found: list[grpc.aio.AioRpcError] = []

        async def call() -> None:
            try:
                await peer.call(HEALTH, b"")
            except grpc.aio.AioRpcError as error:
                found.append(error)

        while not found:  # a slow machine may spread the calls over the time that they may take
            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(call)
        return max(found, key=retry_s)


def retry_s(error: grpc.aio.AioRpcError) -> float:
    """What the details say, as gRPC's own library reads them."""
    (details,) = [value for key, value in error.trailing_metadata() or () if key == DETAILS]
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.RetryInfo()
    (packed,) = [it for it in status.details if it.Is(info.DESCRIPTOR)]
    packed.Unpack(info)
    return float(info.retry_delay.ToMilliseconds()) / 1000


async def test_who_calls_too_often_is_told_when_to_come_again() -> None:
    async with world("identity:127.0.0.1 calls=10") as (_, peer):
        error = await until_refused(peer)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 1.0 < retry_s(error) < 1.5, "others wait for a second already"
        said = ended(error).error
        assert said is not None
        assert said.code == Code.RATE_LIMIT_REJECTED
        assert "identity '127.0.0.1' is over its limit of calls; try again in" in said.cause


async def test_grpcs_own_retries_come_when_they_are_told() -> None:
    """Five tries with 1 ms between them would be over long before the limit has room again."""
    async with world("identity:127.0.0.1 calls=10") as (broker, _):
        options = (
            ("grpc.service_config", json.dumps({"methodConfig": [RETRIES]})),
            ("grpc.use_local_subchannel_pool", 1),
        )
        async with grpc.aio.insecure_channel(broker.address, options=options) as channel:
            peer = Peer(channel)
            with anyio.fail_after(ANSWER_S):
                while not broker.edge.meters.limit_refused:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(24):
                            tasks.start_soon(peer.call, HEALTH, b"")


async def test_the_trailer_says_what_the_details_say() -> None:
    async with world("identity:127.0.0.1 calls=10") as (_, peer):
        error = await until_refused(peer)
        (told,) = [value for key, value in error.trailing_metadata() or () if key == PUSHBACK]
        assert int(told) == round(retry_s(error) * 1000)


async def test_streams_are_calls_too_and_probes_are_not() -> None:
    async with world("identity:127.0.0.1 calls=1") as (_, peer):
        for _ in range(20):
            await peer.call(CHECK, b"")
        codes: set[int] = set()

        async def end(stream: PeerStream) -> None:
            await stream.half_close()
            codes.add((await stream.end()).code)

        with anyio.fail_after(ANSWER_S):
            while 8 not in codes:
                async with anyio.create_task_group() as tasks:
                    for stream in [peer.produce() for _ in range(8)]:
                        tasks.start_soon(end, stream)
        assert codes == {0, 8}


async def test_processes_of_the_cluster_are_not_limited() -> None:
    async with controlled() as here, connected(here.broker) as peer:
        here.broker.edge.limit_rates(parsed_limits("identity:* calls=1"))
        for _ in range(20):
            await peer.call(HEALTH, b"", {"tidemark-process": SECRET})


async def test_our_client_waits_by_itself_as_long_as_it_is_told() -> None:
    patient = Deadlines(call_s=ANSWER_S)
    async with (
        world("identity:127.0.0.1 calls=2") as (broker, _),
        connect(broker.address, deadlines=patient) as log,
    ):
        with anyio.fail_after(ANSWER_S):
            while not broker.edge.meters.limit_refused:
                async with anyio.create_task_group() as tasks:
                    for _ in range(8):
                        tasks.start_soon(log.admin.health)


async def test_a_wait_beyond_the_deadline_is_an_error_that_says_how_long() -> None:
    async with world("identity:127.0.0.1 calls=1") as (broker, _):
        connection = Connection(broker.address, cluster=CLUSTER, lifetime=ClientLifetime())
        refused: list[RateLimited] = []

        async def call() -> None:
            try:
                with suppress(DeadlineExceeded):
                    await connection.call(
                        HEALTH, v1.HealthRequest(), v1.HealthResponse, deadline_s=1.0
                    )
            except RateLimited as error:
                refused.append(error)

        with anyio.fail_after(ANSWER_S):
            while not refused:  # calls that come one after the other do not exceed the limit
                async with anyio.create_task_group() as tasks:
                    for _ in range(9):
                        tasks.start_soon(call)
        connection.close()
        assert all("try again in" in str(it) and it.retry_s >= 1.0 for it in refused)


async def test_a_client_that_connects_meanwhile_waits_too() -> None:
    async with world("identity:127.0.0.1 calls=10") as (broker, peer):
        await until_refused(peer)
        patient = Deadlines(connect_s=ANSWER_S, call_s=ANSWER_S)
        async with connect(broker.address, deadlines=patient) as log:
            assert (await log.admin.health()).state == "healthy"
