"""A call that arrives too late, or is answered too late, ends as one that is late."""

import anyio
import grpclib.client
import pytest
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError
from grpclib.metadata import Deadline

from broker.transport import ServerBatchStream
from broker.transport.timeouts import with_least_timeout
from tests.broker.transport.echo import CALL, serving


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("0n", "5m"),
        ("0S", "5m"),
        ("12u", "5m"),
        ("4m", "5m"),
        ("5m", "5m"),
        ("9S", "9S"),
        ("x", "x"),
    ],
)
def test_a_deadline_leaves_a_moment(given: str, kept: str) -> None:
    others = [(":path", "/a/B"), ("te", "trailers")]
    assert [*with_least_timeout([*others, ("grpc-timeout", given)])] == [
        *others,
        ("grpc-timeout", kept),
    ]
    assert with_least_timeout(others) is others


@pytest.mark.parametrize("timeout_s", [0.0, 0.000_001, 0.05])
async def test_a_late_call_is_told_that_its_deadline_has_passed(
    timeout_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(stream: ServerBatchStream) -> None:
        await anyio.sleep_forever()

    async with serving(never) as (_, channel):
        call: grpclib.client.Stream[bytes, bytes] = channel.request(
            CALL, Cardinality.STREAM_STREAM, bytes, bytes
        )
        async with call:
            call._deadline = Deadline.from_timeout(timeout_s)
            await call.send_request()
            await call.end()
            call._deadline = None  # it is the server that tells
            with pytest.raises(GRPCError) as ended:
                await call.recv_initial_metadata()
    assert ended.value.status is Status.DEADLINE_EXCEEDED
    assert "Traceback" not in caplog.text
