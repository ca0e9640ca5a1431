"""AssignmentDiscover: pushed at once, pushed again on change, never ended early."""

import anyio
import pytest

from schemas.generated.milvus.proto import streaming as wire
from tests.wire.peer import Peer, PeerStream
from tests.wire.small_broker import DISCOVER, NODE, P0, SmallBroker

CLOSE_REQUEST = b"\x12\x00"
CLOSE_ANSWER = b"\x12\x00"
Table = wire.FullStreamingNodeAssignmentWithVersion


async def table(stream: PeerStream) -> Table:
    answer = wire.AssignmentDiscoverResponse.parse(await stream.receive())
    assert answer.full_assignment is not None
    return answer.full_assignment


def version(found: Table) -> tuple[int, int]:
    assert found.version_by_revision is not None, "clients skip a table without it"
    return found.version_by_revision.global_, found.version_by_revision.local


def terms(found: Table) -> dict[str, int]:
    return {channel.name: channel.term for node in found.assignments for channel in node.channels}


async def test_the_table_comes_at_once_and_names_everything_a_client_needs(peer: Peer) -> None:
    found = await table(peer.open(DISCOVER, {}))
    assert terms(found) == {P0: 2}
    assert [entry.node.server_id for entry in found.assignments if entry.node] == [NODE]
    assert all(entry.node.address for entry in found.assignments if entry.node)
    assert found.cchannel is not None
    assert found.cchannel.meta is not None
    assert found.cchannel.meta.pchannel == P0
    assert found.streaming_version == wire.StreamingVersion(version=2)
    assert found.replicate_configuration is None
    assert version(found) > (0, 0)


async def test_a_change_is_pushed_whole_with_a_greater_version(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = peer.open(DISCOVER, {})
    before = await table(stream)
    broker.system.kill(broker.channel_path(P0, "appender"))
    seen = before
    while terms(seen).get(P0) != 3:
        after = await table(stream)
        assert version(after) > version(seen)
        seen = after


async def test_a_report_of_a_dead_channel_at_its_term_brings_the_next_term(peer: Peer) -> None:
    stream = peer.open(DISCOVER, {})
    await table(stream)
    await stream.send(_report(P0, 2))
    while terms(await table(stream)).get(P0) != 3:
        pass


async def test_a_report_about_another_term_or_no_channel_does_nothing(peer: Peer) -> None:
    stream = peer.open(DISCOVER, {})
    assert terms(await table(stream)) == {P0: 2}
    await stream.send(_report(P0, 1), _report(P0, 9), _report("nobody", 2), _report("", 0))
    await stream.send(b"", b"\x1a\x00", CLOSE_REQUEST)
    assert await stream.receive() == CLOSE_ANSWER
    assert terms(await table(peer.open(DISCOVER, {}))) == {P0: 2}


@pytest.mark.parametrize("says_close", [True, False])
async def test_close_or_half_close_gets_close_and_ok(peer: Peer, says_close: bool) -> None:
    stream = peer.open(DISCOVER, {})
    await table(stream)
    if says_close:
        await stream.send(CLOSE_REQUEST)
    await stream.half_close()
    assert await stream.receive() == CLOSE_ANSWER
    assert await stream.status() == (0, None)


async def test_the_stream_outlives_the_assigner(broker: SmallBroker, peer: Peer) -> None:
    stream = peer.open(DISCOVER, {})
    first = await table(stream)
    broker.system.kill("/root/coordinator/assigner")
    seen = first
    broker.system.kill(broker.channel_path(P0, "appender"))
    with anyio.fail_after(60):
        while terms(seen).get(P0, 0) < 3:
            after = await table(stream)
            assert version(after) > version(seen)
            seen = after


def _report(name: str, term: int) -> bytes:
    report = wire.ReportAssignmentErrorRequest(
        pchannel=wire.PChannelInfo(name=name, term=term), err=wire.StreamingError(cause="it died")
    )
    return bytes(wire.AssignmentDiscoverRequest(report_error=report))
