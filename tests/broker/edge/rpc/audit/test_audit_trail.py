"""Which calls are recorded, and how, over the wire of a whole broker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import grpc
import pytest
from grpclib.const import Status

from actors.testing import VirtualClock, run_seeded
from broker.core.audit.audit_record import AuditKind, AuditRecord, Decision
from broker.core.audit.repeated_refusals import WINDOW_S
from broker.core.pressure.limit_rules import parsed_limits
from broker.edge.rpc.audit.audit_sink import AuditFigures, NoAudit
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.model.failure import Refusal, StreamingCode
from schemas.generated.tidemark import v1
from schemas.wire import message, produce_request
from tests.wire.peer import Peer, append, connected
from tests.wire.small_broker import NODE_CONTROL, P0, PRODUCE, STATE, V0, SmallBroker, small_broker

KILL = "/tidemark.v1.Admin/Kill"
CREATE = "/tidemark.v1.Collections/Create"
LIST = "/tidemark.v1.Collections/List"
GUARD_S = 60.0


class Recorded:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def put(self, record: AuditRecord) -> None:
        self.records.append(record)

    def figures(self) -> AuditFigures:
        return AuditFigures(len(self.records))

    def warnings(self) -> Sequence[str]:
        return ()

    async def of(self, method: str, count: int = 1) -> list[AuditRecord]:
        """Its records, once there are so many: a record comes after the answer."""
        with anyio.fail_after(GUARD_S):
            while True:
                found = [it for it in self.records if it.method == method]
                if len(found) >= count:
                    return found
                await anyio.sleep(0.005)


@asynccontextmanager
async def recorded(*, data: bool = False) -> AsyncIterator[tuple[SmallBroker, Peer, Recorded]]:
    sink = Recorded()
    trail = AuditTrail(sink)
    trail.data = data
    async with small_broker(audit=trail) as broker, connected(broker) as peer:
        yield broker, peer, sink


async def test_an_admin_action_is_recorded_with_who_what_from_where_and_how_it_ended() -> None:
    async with recorded() as (_, peer, sink):
        await peer.call(CREATE, bytes(v1.CreateCollectionRequest(name="flights", shards=1)))
        (record,) = await sink.of(CREATE)
    assert (record.kind, record.action, record.who) == (AuditKind.ADMIN, "ddl", "-")
    assert record.peer.startswith("127.0.0.1:")
    assert record.named == {"collection": "flights"}
    assert (record.decision, record.outcome) == (Decision.ALLOWED, "ok")
    assert record.took_ms > 0


async def test_an_admin_action_that_fails_is_recorded_with_its_code() -> None:
    async with recorded() as (_, peer, sink):
        request = v1.DropCursorRequest(name="nobody's")
        with pytest.raises(grpc.aio.AioRpcError):
            await peer.call("/tidemark.v1.TimeSync/DropCursor", bytes(request))
        (record,) = await sink.of("/tidemark.v1.TimeSync/DropCursor")
        path = "/root/coordinator/assigner"
        await peer.call(KILL, bytes(v1.KillRequest(path=path)))
        (killed,) = await sink.of(KILL)
    assert record.named == {"cursor": "nobody's"}
    assert (record.decision, record.outcome) == (Decision.ALLOWED, "CHANNEL_NOT_EXIST")
    assert (killed.action, killed.named, killed.outcome) == ("chaos", {"path": path}, "ok")


async def test_who_only_looks_is_not_recorded() -> None:
    async with recorded(data=True) as (_, peer, sink):
        await peer.call(LIST, bytes(v1.ListCollectionsRequest()))
        await peer.call(STATE, b"")
        await peer.call(KILL, bytes(v1.KillRequest(path="/root/coordinator/oracle")))
        await sink.of(KILL)
    assert {it.method for it in sink.records} == {KILL}


async def test_every_refusal_is_recorded_whatever_was_asked() -> None:
    async with recorded() as (_, peer, sink):
        for path, request in (
            (STATE, b"\xff"),
            (f"{NODE_CONTROL}CollectStatus", b"\xff"),
            (CREATE, bytes(v1.CreateCollectionRequest(name="no name", shards=1))),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await peer.call(path, request)
            (record,) = await sink.of(path)
            assert (record.decision, record.outcome) == (Decision.REFUSED, "INVALID_ARGUMENT")
        with pytest.raises(grpc.aio.AioRpcError):
            await peer.call(LIST, b"", {"cluster": "another"})
        (record,) = await sink.of(LIST)
        assert (record.kind, record.outcome) == (AuditKind.OBSERVE, "IGNORED_OPERATION")


async def test_the_same_refusal_again_and_again_is_one_line_and_a_sum() -> None:
    sink = Recorded()
    trail = AuditTrail(sink)
    async with small_broker(audit=trail) as broker, connected(broker) as peer:
        for _ in range(50):
            with pytest.raises(grpc.aio.AioRpcError):
                await peer.call(STATE, b"\xff")
        assert len(await sink.of(STATE)) == 1
    trail.close()
    first, total = sink.records
    assert (first.repeated, total.repeated) == (0, 49)
    assert total.peer == "127.0.0.1"


async def test_access_to_data_is_a_line_a_stream_at_its_end_and_only_by_setting() -> None:
    for data in (False, True):
        async with recorded(data=data) as (_, peer, sink):
            stream = peer.produce()
            await stream.receive()
            for number in range(20):
                await stream.send(append(number))
                await stream.receive()
            assert sink.records == [], "it has not ended"
            await stream.half_close()
            await stream.end()
            await peer.call(KILL, bytes(v1.KillRequest(path="/root/coordinator/oracle")))
            await sink.of(KILL)
        found = [it for it in sink.records if it.method == PRODUCE]
        assert len(found) == (1 if data else 0)
        for record in found:
            assert (record.kind, record.action) == (AuditKind.DATA, "produce")
            assert record.named == {"pchannel": P0, "vchannels": [V0]}
            assert record.outcome == "ok"


async def test_a_reader_that_leaves_is_recorded_as_cancelled() -> None:
    consume = "/milvus.proto.streaming.StreamingNodeHandlerService/Consume"
    async with recorded(data=True) as (_, peer, sink):
        stream = peer.consume()
        await stream.receive()
        stream.call.cancel()
        (record,) = await sink.of(consume)
    assert record.named == {"pchannel": P0}
    assert (record.decision, record.outcome) == (Decision.ALLOWED, "CANCELLED")


async def test_a_message_that_a_stream_refuses_is_recorded_and_the_stream_goes_on() -> None:
    async with recorded() as (_, peer, sink):
        stream = peer.produce()
        await stream.receive()
        for number in range(3):
            bad = message(b"", {"_t": "2", "_v": "1", "_vc": "of-another-channel_1v0"})
            await stream.send(produce_request(number, bad))
            await stream.receive()
        await stream.send(append(9))
        await stream.receive()
        (record,) = await sink.of(PRODUCE)
        await stream.half_close()
        await stream.end()
    assert (record.decision, record.outcome) == (Decision.REFUSED, "INVALID_ARGUMENT")
    assert record.named == {"vchannel": "of-another-channel_1v0"}


async def test_an_append_above_a_limit_is_recorded_as_refused() -> None:
    async with recorded() as (broker, peer, sink):
        broker.edge.limit_rates(parsed_limits("identity:* in_bytes=1"))
        stream = peer.produce()
        await stream.receive()
        for number in range(3):  # the first is the burst, and a debt of many seconds
            await stream.send(append(number, b"x" * 1000))
        (record,) = await sink.of(PRODUCE)
        assert (record.decision, record.outcome) == (Decision.REFUSED, "RATE_LIMIT_REJECTED")
        assert record.named == {"vchannel": V0}
        stream.call.cancel()


def test_sums_are_written_when_their_window_ends_and_no_timer_runs_without_one() -> None:
    sink = Recorded()

    async def main() -> None:
        trail = AuditTrail(sink, VirtualClock())
        for port in range(5):
            trail.connection_refused(f"10.0.0.1:{port}", "CONNECTIONS_MAX")
        await anyio.sleep(WINDOW_S + 10)
        assert [it.repeated for it in sink.records] == [0, 4]
        await anyio.sleep(WINDOW_S + 10)
        assert [it.repeated for it in sink.records] == [0, 4]
        trail.connection_refused("10.0.0.1:9", "CONNECTIONS_MAX")
        assert len(sink.records) == 3
        trail.close()
        trail.close()

    run_seeded(1, main)
    assert {(it.action, it.decision, it.outcome) for it in sink.records} == {
        ("connect", Decision.REFUSED, "CONNECTIONS_MAX")
    }


def test_a_denial_that_its_caller_takes_for_a_missing_name_is_recorded_as_refused() -> None:
    sink = Recorded()

    async def main() -> None:
        trail = AuditTrail(sink, VirtualClock())
        call = trail.begin("/tidemark.v1.Log/Read", None, {})
        call.user = "ann"
        call.denied = True
        call.ended(Refusal(StreamingCode.CHANNEL_NOT_EXIST, "there is no such channel"))
        trail.end(call)
        trail.close()

    run_seeded(1, main)
    (record,) = sink.records
    assert (record.user, record.decision, record.outcome) == (
        "ann", Decision.REFUSED, "CHANNEL_NOT_EXIST",
    )  # fmt: skip


@pytest.mark.parametrize("status", ["UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"])
def test_a_status_of_grpc_is_an_outcome_too(status: str) -> None:
    sink = Recorded()

    async def main() -> None:
        trail = AuditTrail(sink, VirtualClock())
        call = trail.begin("/tidemark.v1.Collections/Drop", None, {})
        call.ended_with(Status[status])
        trail.end(call)
        trail.close()

    run_seeded(1, main)
    (record,) = sink.records
    refused = status != "NOT_FOUND"
    assert record.outcome == status
    assert record.decision is (Decision.REFUSED if refused else Decision.ALLOWED)


def test_a_server_without_an_audit_records_nothing() -> None:
    sink = NoAudit()
    assert (sink.figures(), tuple(sink.warnings())) == (AuditFigures(), ())


async def test_a_call_of_a_method_that_no_service_has_is_a_refusal() -> None:
    async with recorded() as (_, peer, sink):
        for method in ("/tidemark.v1.Log/Guess", f"/{'x' * 4000}/y"):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await peer.channel.unary_unary(method)(b"")
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        (record,) = await sink.of("/tidemark.v1.Log/Guess")
        told = record.action, record.decision, record.outcome
        assert told == ("unknown", Decision.REFUSED, "UNIMPLEMENTED")
        (long,) = [it for it in sink.records if it.method.startswith("/xxx")]
        assert len(long.method) < 300
