"""Dead letters of a group whose limit changes, or whose dead letters are gone."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.codec.letters import letters_of
from broker.model.batch import BatchPart, NewBatch
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import DeliveryLimit, GroupView
from broker.model.groups.dead_letter import GROUP, ID, Letter
from broker.model.groups.dead_letter import VCHANNEL as OF_VCHANNEL
from broker.model.ids import TimeTick
from broker.model.message import MessageType, NewMessage
from broker.node.group_messages import AlterGroup, BeginLease, CreateGroup, RejectMessages
from schemas.batches import shared_properties
from schemas.generated.milvus.proto import messages, msg, schema
from tests.broker.node.groups.test_dead_letters import (
    DEAD,
    LEASE_MS,
    LIMIT,
    create,
    dead,
    nothing_dies,
    rows,
    settled,
    took,
)
from tests.broker.node.groups.test_group_leases import KEY, VCHANNEL, join, keeper, shown
from tests.broker.node.rows_of_collections import stored
from tests.broker.node.world import PCHANNEL, Reader, World, appended, running_node

OTHER_DEAD = f"{PCHANNEL}_9v0"


def of_the_dead(kind: MessageType, header: bytes, payload: bytes = b"x") -> NewMessage:
    return NewMessage(DEAD, kind, stored(kind, header, payload, DEAD), len(payload))


def created() -> NewMessage:
    header = messages.CreateCollectionMessageHeader(collection_id=8, partition_ids=[1])
    request = msg.CreateCollectionRequest(collection_schema=schema.CollectionSchema(name="d"))
    return of_the_dead(MessageType.CREATE_COLLECTION, bytes(header), bytes(request))


def dropped() -> NewMessage:
    header = messages.DropCollectionMessageHeader(collection_id=8)
    return of_the_dead(MessageType.DROP_COLLECTION, bytes(header))


async def alter(world: World, limit: DeliveryLimit | None) -> GroupView | Refusal:
    request = AlterGroup(KEY, LEASE_MS, limit)
    answer = await (await keeper(world)).ask(request, deadline_s=60)
    assert isinstance(answer, GroupView | Refusal)
    return answer


async def copies_on(world: World, vchannel: str) -> list[Letter]:
    reader = Reader(world, vchannel)
    end = (await world.offsets()).next_id
    found: list[Letter] = []
    while reader.cursor.next_id < end:
        answer = await reader.pull()
        assert not isinstance(answer, Refusal)
        found += [it for it in letters_of(answer.items) if it.is_copy]
    return found


async def rejected(world: World, *texts: str) -> None:
    """A member rejects these, and leaves."""
    appended(await world.append(rows(*texts)))
    worker = await join(world)
    lease, _, _ = await took(worker)
    request = RejectMessages(worker.joined.member, lease, (), "bad")
    assert await settled(worker, request) is None
    worker.leave()


def test_what_dies_waits_when_the_dead_letters_were_dropped_and_goes_to_new_ones() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(created()))
            await create(world)
            await rejected(world, "a")
            await nothing_dies(world)
            appended(await world.append(dropped()))
            await rejected(world, "b", "c")
            while not (await shown(world)).trouble:
                await world.clock.sleep(0.1)
            view = await shown(world)
            assert "was dropped; alter the group to have them in a new one" in view.trouble
            assert view.group.dying
            await world.clock.sleep(100)
            assert [it.payload for it in await copies_on(world, DEAD)] == [b"a"]
            refusal = await alter(world, replace(LIMIT, deliveries_max=4))
            assert isinstance(refusal, Refusal)
            assert "was dropped" in refusal.cause
            request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False, limit=LIMIT)
            assert isinstance(await (await keeper(world)).ask(request, deadline_s=60), Refusal)
            # Nobody joins: an altered group copies what was dying before.
            altered = await alter(world, replace(LIMIT, vchannel=OTHER_DEAD))
            assert isinstance(altered, GroupView)
            await nothing_dies(world)
            assert [it.payload for it in await copies_on(world, OTHER_DEAD)] == [b"b", b"c"]
            assert (await shown(world)).trouble == ""

    run_seeded(1, scenario)


def test_a_smaller_limit_kills_no_neighbours() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world, replace(LIMIT, deliveries_max=10))
            appended(await world.append(rows("a", "poison", "b")))
            worker = await join(world)
            for _ in range(6):
                lease, found, _ = await took(worker)
                assert found == ["a", "poison", "b"]
                assert await worker.nack(lease) is None
            worker.leave()
            assert isinstance(await alter(world, LIMIT), GroupView)
            worker = await join(world)
            done: list[str] = []
            for _ in range(3):
                lease, found, alone = await took(worker)
                assert alone
                begin = BeginLease(worker.joined.member, lease)
                assert await settled(worker, begin) is None
                if found == ["poison"]:
                    assert await worker.nack(lease) is None
                else:
                    assert await worker.ack(lease) is None
                    done += found
            assert sorted(done) == ["a", "b"]
            while not await dead(world):
                await world.clock.sleep(0.1)
            await nothing_dies(world)
            assert [it.payload for it in await dead(world)] == [b"poison"]

    run_seeded(1, scenario)


def test_what_had_its_last_delivery_dies_without_another_member() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            appended(await world.append(rows("poison")))
            worker = await join(world)
            for _ in range(2):
                lease, _, _ = await took(worker)
                assert await worker.nack(lease) is None
            for term in (5, 7):
                lease, _, alone = await took(worker)
                assert alone
                begin = BeginLease(worker.joined.member, lease)
                assert await settled(worker, begin) is None
                # The message kills its member, and the node with it.
                assert await world.remove(term=term) is None
                assert await world.assign(term=term + 1) is None
                if term == 5:
                    worker = await join(world)
            while not await dead(world):
                await world.clock.sleep(0.1)
            await nothing_dies(world)
            view = (await shown(world)).group
            assert (view.tried, view.acked) == ((), ())
            assert [it.payload for it in await dead(world)] == [b"poison"]

    run_seeded(1, scenario)


def test_a_program_that_says_that_it_is_a_copy_suppresses_none() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            (landed,) = appended(await world.append(rows("a")))
            worker = await join(world)
            lease, _, _ = await took(worker)
            # Between the decision and the copy, and with the marks of a copy: only one is missing.
            marks = {GROUP: KEY.name, OF_VCHANNEL: VCHANNEL, ID: str(landed.id)}
            part = BatchPart(shared_properties(marks.items()))
            forged = NewBatch(DEAD, 2, b"forged", 6, sizes=(6,), part=part)
            request = RejectMessages(worker.joined.member, lease, (), "bad")
            assert await settled(worker, request) is None
            appended(await world.append(forged))
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            await nothing_dies(world)
            assert [it.payload for it in await copies_on(world, DEAD)] == [b"a"]

    run_seeded(1, scenario)


def test_a_member_that_nacks_at_once_leaves_new_messages_their_turn() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world, None)
            appended(await world.append(rows("bad")))
            worker = await join(world)
            lease, _, _ = await took(worker)
            assert await worker.nack(lease) is None
            for number in range(20):
                appended(await world.append(rows(f"new {number}")))
                takes = 0
                while True:
                    lease, found, _ = await took(worker)
                    takes += 1
                    assert takes <= 3, "the one that comes again holds up the new ones"
                    if found != ["bad"]:
                        assert found == [f"new {number}"]
                        assert await worker.ack(lease) is None
                        break
                    assert await worker.nack(lease) is None
            lease, found, _ = await took(worker)
            assert found == ["bad"], "and it comes again all the same"
            assert await worker.ack(lease) is None

    run_seeded(1, scenario)
