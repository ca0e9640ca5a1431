"""Transactions through Milvus's Produce and Consume, to the letter of what its Go client bears."""

from base64 import b64encode
from collections.abc import Sequence

import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.milvus.proto import messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.properties.keys import TXN
from schemas.properties.txn_context import TxnContext, begin_header
from schemas.wire import (
    Consumed,
    Produced,
    ProduceFailed,
    VChannelCreated,
    produce_request,
    rocksmq_id_text,
    scan_consume_response,
    scan_produce_response,
)
from tests.wire.peer import Peer, PeerStream, insert
from tests.wire.small_broker import P0, V0
from tests.wire.test_consume import ALL, is_tick, opened, received, request, start_from

BEGIN, COMMIT, ROLLBACK, DROP_COLLECTION, FLUSH_ALL = "900", "901", "902", "6", "37"
V1 = f"{P0}_100v1"


class Txn:
    """One transaction on one Produce stream, played by hand."""

    def __init__(self, stream: PeerStream, vchannel: str = V0) -> None:
        self.stream, self.vchannel = stream, vchannel
        self.context = TxnContext(0, 0)
        self.landed: list[Produced] = []

    async def say(self, kind: str, payload: bytes = b"", **properties: str) -> Produced | Code:
        values = {"_t": kind, "_v": "2", "_vc": self.vchannel} | properties
        await self.stream.send(produce_request(9, insert(payload, **values)))
        answer = scan_produce_response(await self.stream.receive())
        if isinstance(answer, ProduceFailed):
            return Code(answer.code)
        assert isinstance(answer, Produced)
        return answer

    async def begin(self, keepalive_ms: int = 0) -> Produced:
        header = b64encode(begin_header(keepalive_ms)).decode()
        answer = await self.say(BEGIN, _h=header)
        assert isinstance(answer, Produced), answer
        self.context = TxnContext.decode(answer.txn_context)
        self.landed.append(answer)
        return answer

    async def of(self, kind: str, payload: bytes = b"", **properties: str) -> Produced | Code:
        answer = await self.say(kind, payload, _tx=TXN.encode(self.context), **properties)
        if isinstance(answer, Produced):
            assert TxnContext.decode(answer.txn_context) == self.context
            self.landed.append(answer)
        return answer

    async def body(self, payload: bytes) -> Produced | Code:
        return await self.of("2", payload)


async def producing(peer: Peer) -> PeerStream:
    stream = peer.produce()
    await stream.receive()
    return stream


async def begun(peer: Peer, vchannel: str = V0, keepalive_ms: int = 0) -> Txn:
    txn = Txn(await producing(peer), vchannel)
    await txn.begin(keepalive_ms)
    return txn


async def plain(peer: Peer, payload: bytes, **properties: str) -> Produced:
    stream = await producing(peer)
    await stream.send(produce_request(1, insert(payload, **properties)))
    answer = scan_produce_response(await stream.receive())
    assert isinstance(answer, Produced), answer
    return answer


async def until_tick(stream: PeerStream, tick: int) -> list[Consumed]:
    """Everything, ticks too, up to the first time tick that closes `tick`."""
    found: list[Consumed] = []
    while not (found and is_tick(found[-1]) and found[-1].tick >= tick):
        found.append(await received(stream))
    return found


def kinds(found: Sequence[Consumed]) -> list[str]:
    return [each.properties["_t"] for each in found if not is_tick(each)]


async def test_a_committed_transaction_comes_in_one_piece_at_the_tick_of_its_commit(
    peer: Peer,
) -> None:
    txn = await begun(peer)
    assert txn.context == TxnContext(txn.landed[0].tick, 10_000)
    await txn.body(b"a")
    between = await plain(peer, b"between")
    await txn.body(b"b")
    commit = await txn.of(COMMIT)
    after = await plain(peer, b"after")
    assert isinstance(commit, Produced)
    stream = await opened(peer)
    found = await until_tick(stream, after.tick)
    first = next(i for i, each in enumerate(found) if each.properties["_t"] == BEGIN)
    members = found[first : first + 4]
    assert kinds(found) == ["2", BEGIN, "2", "2", COMMIT, "2"]
    assert [each.properties["_t"] for each in members] == [BEGIN, "2", "2", COMMIT]
    assert [each.payload for each in members] == [b"", b"a", b"b", b""]
    assert [each.message_id for each in members] == [it.message_id for it in txn.landed]
    assert {each.tick for each in members} == {commit.tick}
    assert {each.last_confirmed_id for each in members} == {commit.last_confirmed_id}
    assert {each.properties["_tx"] for each in members} == {TXN.encode(txn.context)}
    confirmed = rocksmq_id_text(commit.last_confirmed_id)
    for each in members:
        assert each.properties["_lc"] == confirmed
        assert "_lcs" not in each.properties
        assert each.properties["_wt"] == "2"
    assert commit.last_confirmed_id <= txn.landed[0].message_id
    assert between.last_confirmed_id == txn.landed[0].message_id
    assert after.last_confirmed_id == after.message_id
    ticks = [each.tick for each in found]
    assert ticks == sorted(ticks)


@pytest.mark.parametrize("end", [ROLLBACK, None])
async def test_what_is_rolled_back_or_open_is_never_seen(peer: Peer, end: str | None) -> None:
    txn = await begun(peer)
    await txn.body(b"secret")
    if end is not None:
        assert isinstance(await txn.of(end), Produced)
    after = await plain(peer, b"after")
    found = await until_tick(await opened(peer), after.tick)
    assert [each.payload for each in found if not is_tick(each)] == [b"after"]


async def test_resuming_from_the_last_confirmed_id_gives_every_later_transaction_whole(
    peer: Peer,
) -> None:
    txn, other = await begun(peer), await begun(peer, V1)
    await txn.body(b"a")
    handled = await plain(peer, b"handled")
    await other.of("2", b"x")
    await txn.body(b"b")
    commit = await txn.of(COMMIT)
    await other.of(COMMIT)
    last = await plain(peer, b"last")
    assert isinstance(commit, Produced)
    after = wire.DeliverFilter(time_tick_gt=wire.DeliverFilterTimeTickGt(time_tick=handled.tick))
    stream = await opened(
        peer, request(start_from(handled.last_confirmed_id), filters=[after], vchannel="")
    )
    found = await until_tick(stream, last.tick)
    payloads = [each.payload for each in found if not is_tick(each)]
    assert payloads == [b"", b"a", b"b", b"", b"", b"x", b"", b"last"]


async def test_a_reader_of_one_type_sees_the_frame_of_a_transaction_it_wants_nothing_of(
    peer: Peer,
) -> None:
    txn = await begun(peer)
    await txn.body(b"a")
    await txn.of("3", b"gone")
    last = await txn.of(COMMIT)
    assert isinstance(last, Produced)
    deletes = wire.DeliverFilter(
        message_type=wire.DeliverFilterMessageType(message_types=[messages.MessageType(3)])
    )
    found = await until_tick(await opened(peer, request(ALL, filters=[deletes])), last.tick)
    assert kinds(found) == [BEGIN, "3", COMMIT]


async def test_a_repeated_commit_gets_the_first_answer(peer: Peer) -> None:
    txn = await begun(peer)
    await txn.body(b"a")
    first = await txn.of(COMMIT)
    again = Txn(await producing(peer))
    again.context = txn.context
    assert await again.of(COMMIT) == first
    assert await again.body(b"late") is Code.INVALID_TRANSACTION_STATE
    assert await again.of(ROLLBACK) is Code.INVALID_TRANSACTION_STATE


async def test_what_does_not_fit_a_transaction_is_refused_and_leaves_it_as_it_was(
    peer: Peer,
) -> None:
    txn = await begun(peer)
    unknown = Txn(txn.stream)
    unknown.context = TxnContext(4711, 10_000)
    assert await unknown.body(b"?") is Code.TRANSACTION_EXPIRED
    assert await unknown.of(COMMIT) is Code.TRANSACTION_EXPIRED
    elsewhere = Txn(txn.stream, V1)
    elsewhere.context = txn.context
    assert await elsewhere.body(b"?") is Code.INVALID_ARGUMENT
    assert await elsewhere.of(COMMIT) is Code.INVALID_ARGUMENT
    assert await txn.of(DROP_COLLECTION) is Code.INVALID_ARGUMENT
    assert await txn.say(COMMIT) is Code.INVALID_ARGUMENT
    assert await txn.say(COMMIT, _tx="!") is Code.INVALID_ARGUMENT
    assert await txn.say(BEGIN, _tx=TXN.encode(txn.context)) is Code.INVALID_ARGUMENT
    negative = b64encode(begin_header(-5)).decode()
    assert await txn.say(BEGIN, _h=negative) is Code.INVALID_ARGUMENT
    assert isinstance(await txn.body(b"a"), Produced)
    commit = await txn.of(COMMIT)
    assert isinstance(commit, Produced)
    found = await until_tick(await opened(peer), commit.tick)
    assert kinds(found) == [BEGIN, "2", COMMIT]


@pytest.mark.parametrize(
    ("exclusive", "survives"),
    [
        ({"_t": DROP_COLLECTION, "_vc": V0}, False),
        ({"_t": DROP_COLLECTION, "_vc": V1}, True),
        ({"_t": DROP_COLLECTION, "_vc": P0}, False),
        ({"_t": DROP_COLLECTION, "_vc": V1, "_pcl": ""}, False),
        ({"_t": FLUSH_ALL, "_vc": V1}, False),
    ],
)
async def test_an_exclusive_message_ends_the_transactions_of_its_scope(
    peer: Peer, exclusive: dict[str, str], survives: bool
) -> None:
    txn = await begun(peer)
    await txn.body(b"a")
    await plain(peer, b"", _v="2", **exclusive)
    commit = await txn.of(COMMIT)
    assert isinstance(commit, Produced) is survives
    if not survives:
        assert commit is Code.TRANSACTION_EXPIRED
        assert await txn.body(b"b") is Code.TRANSACTION_EXPIRED
    after = await plain(peer, b"after")
    found = await until_tick(await opened(peer, request(ALL, vchannel="")), after.tick)
    assert (BEGIN in kinds(found)) is survives


async def test_a_transaction_whose_keepalive_passes_is_over(peer: Peer) -> None:
    stream = await producing(peer)
    txn = Txn(stream)
    await txn.begin(keepalive_ms=1)
    assert txn.context.keepalive_ms == 1
    after = await plain(peer, b"after")
    watching = await opened(peer)
    while (await until_tick(watching, after.tick))[-1].tick < after.tick + (5 << 18):
        pass
    assert await txn.of(COMMIT) is Code.TRANSACTION_EXPIRED


async def test_an_open_transaction_is_created_before_the_consumer_and_committed_after(
    peer: Peer,
) -> None:
    txn = await begun(peer)
    await txn.body(b"a")
    latest = wire.DeliverPolicy(latest=ALL.all)
    stream = peer.consume(2)
    await stream.receive()
    await stream.send(request(latest))
    assert scan_consume_response(await stream.receive()) == VChannelCreated(1)
    await txn.body(b"b")
    commit = await txn.of(COMMIT)
    assert isinstance(commit, Produced)
    found = await until_tick(stream, commit.tick)
    assert [each.payload for each in found if not is_tick(each)] == [b"", b"a", b"b", b""]
