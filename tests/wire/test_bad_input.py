"""What a Milvus client must not do to transactions and collections: a code, and nothing else.

Each case meets a broker with a collection, an open transaction and an ended one, and finds the same
one afterwards: what people are told of it, and every message that a reader gets.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode as Code
from broker.node.state.node_limits import NodeLimits
from schemas.generated.tidemark import v1
from schemas.properties.keys import BARRIER_TICK, TXN
from schemas.properties.txn_context import TxnContext, begin_header
from schemas.wire import Produced, ProduceFailed, produce_request, scan_produce_response
from tests.wire.peer import Peer, connected, insert
from tests.wire.small_broker import P0, V0, small_broker
from tests.wire.test_collections import INSERT, Proxy, insert_header, proxy
from tests.wire.test_consume import ALL, is_tick, opened, request
from tests.wire.test_transactions import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    V1,
    Txn,
    begun,
    plain,
    until_tick,
)

A, B = 1, 2
KEEPALIVE_MS = 60_000
"""A machine that stands still for 10 s must not end a transaction that a case needs."""
FUTURE = BARRIER_TICK.encode(1 << 62)
CREATE, CREATE_SEGMENT = "5", "10"


@dataclass
class Scene:
    """What each case meets. `busy` holds a segment of the collection."""

    proxy: Proxy
    open: Txn
    done: Txn
    rolled_back: Txn
    busy: str

    def unknown(self) -> Txn:
        """One that nobody began."""
        txn = Txn(self.open.stream, V1)
        txn.context = TxnContext(4711, 10_000)
        return txn

    def elsewhere(self) -> Txn:
        """The open one, by a message for another vchannel."""
        txn = Txn(self.open.stream, f"{P0}_100v2")
        txn.context = self.open.context
        return txn

    async def insert(self, *partitions: int, version: int = 2, rows: int = 1, **more: str) -> Code:
        header = insert_header(*partitions, rows=rows, version=version)
        return refused(await self.proxy.say(INSERT, header, b"row", **more))

    async def begin(self, keepalive_ms: int) -> Code:
        header = b64encode(begin_header(keepalive_ms)).decode()
        return refused(await self.open.say(BEGIN, _h=header))


async def scene_of(peer: Peer) -> Scene:
    one = await proxy(peer)
    assert isinstance(await one.create(version=2), Produced)
    begun_there = await one.say(BEGIN, begin_header(KEEPALIVE_MS), b"")
    assert isinstance(begun_there, Produced)
    busy = TXN.encode(TxnContext.decode(begun_there.txn_context))
    assert isinstance(await one.say(INSERT, insert_header(A, version=2), _tx=busy), Produced)
    still_open, done, rolled_back = [await begun(peer, V1, KEEPALIVE_MS) for _ in range(3)]
    for txn in (still_open, done, rolled_back):
        await txn.body(b"a")
    assert isinstance(await done.of(COMMIT), Produced)
    assert isinstance(await rolled_back.of(ROLLBACK), Produced)
    return Scene(one, still_open, done, rolled_back, busy)


def refused(outcome: Produced | Code) -> Code:
    assert isinstance(outcome, Code), outcome
    return outcome


async def told(peer: Peer) -> tuple[int, ...]:
    """Transactions and segments, as people see them."""
    answer = await peer.call("/tidemark.v1.Admin/Channels", b"")
    (it,) = v1.ChannelsResponse.parse(answer).channels
    segments = (it.growing_segments, it.growing_bytes, it.sealed_segments)
    return (it.open_txns, it.open_txn_bytes, *segments)


Case = Callable[[Scene], Awaitable[Produced | Code]]
STATE, GONE, BAD = Code.INVALID_TRANSACTION_STATE, Code.TRANSACTION_EXPIRED, Code.INVALID_ARGUMENT
NEVER, STALE = Code.UNRECOVERABLE, Code.SCHEMA_VERSION_MISMATCH
CASES: dict[str, tuple[Case, Code]] = {
    "a body after the commit": (lambda it: it.done.body(b"late"), STATE),
    "a rollback after the commit": (lambda it: it.done.of(ROLLBACK), STATE),
    "a body after the rollback": (lambda it: it.rolled_back.body(b"late"), STATE),
    "a commit after the rollback": (lambda it: it.rolled_back.of(COMMIT), STATE),
    "a body of an unknown id": (lambda it: it.unknown().body(b"?"), GONE),
    "a commit of an unknown id": (lambda it: it.unknown().of(COMMIT), GONE),
    "a rollback of an unknown id": (lambda it: it.unknown().of(ROLLBACK), GONE),
    "a body for another vchannel": (lambda it: it.elsewhere().body(b"?"), BAD),
    "a commit for another vchannel": (lambda it: it.elsewhere().of(COMMIT), BAD),
    "a negative keepalive": (lambda it: it.begin(-1), BAD),
    "a barrier from the future": (lambda it: it.open.say("2", b"x", _btt=FUTURE), NEVER),
    "a body with such a barrier": (lambda it: it.open.of("2", b"x", _btt=FUTURE), NEVER),
    "a commit with such a barrier": (lambda it: it.open.of(COMMIT, _btt=FUTURE), NEVER),
    "a barrier that is none": (lambda it: it.open.say("2", b"x", _btt="!"), BAD),
    "rows of no partition": (lambda it: it.insert(), NEVER),
    "rows of two partitions": (lambda it: it.insert(A, B), NEVER),
    "rows of an unknown partition": (lambda it: it.insert(99), NEVER),
    "more rows than a segment": (lambda it: it.insert(A, rows=1 << 40), NEVER),
    "a stale schema version": (lambda it: it.insert(A, version=1), STALE),
    "a schema version to come": (lambda it: it.insert(A, version=3), STALE),
    "two partitions in a body": (lambda it: it.insert(A, B, _tx=it.busy), NEVER),
    "a stale version in a body": (lambda it: it.insert(A, version=1, _tx=it.busy), STALE),
    "too many rows in a body": (lambda it: it.insert(A, rows=1 << 40, _tx=it.busy), NEVER),
}


@pytest.mark.parametrize(("case", "code"), CASES.values(), ids=CASES)
async def test_it_has_its_code_and_leaves_state_and_log_as_they_were(
    peer: Peer, case: Case, code: Code
) -> None:
    scene = await scene_of(peer)
    before = await told(peer)
    assert await case(scene) is code
    assert await told(peer) == before
    assert isinstance(await scene.proxy.say(COMMIT, b"", b"", _tx=scene.busy), Produced)
    assert isinstance(await scene.open.of(COMMIT), Produced)
    after = await plain(peer, b"after", _vc=V1)
    found = await until_tick(await opened(peer, request(ALL, vchannel="")), after.tick)
    seen = [(it.properties["_t"], it.payload) for it in found if not is_tick(it)]
    assert [kind for kind, _ in seen[:2]] == [CREATE, CREATE_SEGMENT]
    of_txn = [(BEGIN, b""), ("2", b"a"), (COMMIT, b"")]
    rows = [(BEGIN, b""), (INSERT, b"row"), (COMMIT, b"")]
    assert seen[2:] == [*of_txn, *rows, *of_txn, ("2", b"after")]


async def test_a_repeated_commit_is_stored_once(peer: Peer) -> None:
    scene = await scene_of(peer)
    before = await told(peer)
    assert await scene.done.of(COMMIT) == scene.done.landed[-2]
    assert await told(peer) == before


async def test_bodies_and_commit_in_flight_together_land_in_their_order(peer: Peer) -> None:
    scene = await scene_of(peer)
    txn = await begun(peer, V1)
    said = {"_v": "2", "_vc": V1, "_tx": TXN.encode(txn.context)}
    kinds = ("2", "2", COMMIT, "2", COMMIT, ROLLBACK)
    await txn.stream.send(
        *[produce_request(at, insert(b"%d" % at, _t=kind, **said)) for at, kind in enumerate(kinds)]
    )
    answers = {}
    for _ in kinds:
        answer = scan_produce_response(await txn.stream.receive())
        assert isinstance(answer, Produced | ProduceFailed)
        answers[answer.request_id] = answer
    stored = [at for at, it in answers.items() if isinstance(it, Produced)]
    assert sorted(stored) == [0, 1, 2, 4]
    failed = {at: Code(it.code) for at, it in answers.items() if isinstance(it, ProduceFailed)}
    assert failed == {3: STATE, 5: STATE}
    first, again = answers[2], answers[4]
    assert isinstance(first, Produced)
    assert isinstance(again, Produced)
    assert (first.message_id, first.tick) == (again.message_id, again.tick)
    found = await until_tick(await opened(peer, request(ALL, vchannel=V1)), first.tick)
    assert [it.payload for it in found if it.tick == first.tick and not is_tick(it)] == [
        b"", b"0", b"1", b"2",
    ]  # fmt: skip
    assert isinstance(await scene.open.of(COMMIT), Produced)


async def test_rows_of_a_collection_that_nobody_created_are_refused_where_one_is_required() -> None:
    limits = NodeLimits(require_collection=True)
    async with small_broker(node_limits=limits) as broker, connected(broker) as peer:
        one = await proxy(peer)
        before = await told(peer)
        assert await one.insert(A) is NEVER
        assert await one.say("3", b"") is NEVER
        assert await told(peer) == before
        assert isinstance(await one.create(), Produced)
        last = await one.insert(A)
        assert isinstance(last, Produced)
        found = await until_tick(await opened(peer), last.tick)
        kinds = [it.properties["_t"] for it in found if not is_tick(it)]
        assert kinds == [CREATE, CREATE_SEGMENT, INSERT]


async def test_rows_that_come_after_the_drop_are_refused_over_two_restarts() -> None:
    store, wal = MemoryMetaStore(), None
    async with small_broker(store=store, node_limits=NodeLimits(snapshot_records=1)) as broker:
        wal = broker.wal
        async with connected(broker) as peer:
            one = await proxy(peer)
            assert isinstance(await one.create(), Produced)
            assert isinstance(await one.say("6", insert_header(A)), Produced)
            assert await one.insert(A) is NEVER
    for _ in range(2):
        async with small_broker(store=store, wal=wal) as broker, connected(broker) as peer:
            (found,) = v1.ChannelsResponse.parse(
                await peer.call("/tidemark.v1.Admin/Channels", b"")
            ).channels
            one = await proxy(peer, found.term)
            assert await one.insert(A) is NEVER
            assert isinstance(await plain_row(one), Produced)


async def plain_row(one: Proxy) -> Produced | Code:
    """On a vchannel that never was a collection's."""
    return await one.say(INSERT, insert_header(A), _vc=V0.replace("100v0", "101v0"))
