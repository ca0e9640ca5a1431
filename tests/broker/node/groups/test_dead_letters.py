"""Messages that no member can process go to the dead letters: each once, and no other one."""

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.codec.letters import letters_of
from broker.core.pressure.storage_use import StorageUse, uses_of
from broker.model.batch import BatchKeys, BatchPart, NewBatch, OwnProperties
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit, GroupView, TickSpan
from broker.model.groups.dead_letter import (
    CAUSE,
    DELIVERIES,
    GROUP,
    ID,
    MARKS,
    ORIGIN,
    TICK,
    Letter,
)
from broker.model.groups.dead_letter import VCHANNEL as OF_VCHANNEL
from broker.model.ids import TimeTick
from broker.node.group_messages import (
    AlterGroup,
    BeginLease,
    CreateGroup,
    RejectMessages,
)
from broker.node.groups.dead_letter_copies import PAUSE_S
from schemas.batches import shared_properties
from tests.broker.node.groups.test_group_leases import KEY, VCHANNEL, Worker, join, keeper, shown
from tests.broker.node.world import OTHER, PCHANNEL, Reader, World, appended, running_node

DEAD = f"{PCHANNEL}_8v0"
LEASE_MS = 1000
LIMIT = DeliveryLimit(3, DEAD, "trains")


def rows(*texts: str) -> NewBatch:
    payloads = [it.encode() for it in texts]
    properties = {"_t": "2", "_v": "1", "_h": "", "_vc": VCHANNEL, "from": "Ulm"}
    own = shared_properties([("seat", "7")])
    keys = BatchKeys((3, *[0] * (len(texts) - 1)), b"ic")
    part = BatchPart(
        shared_properties(properties.items()),
        keys=keys,
        own=OwnProperties((len(own), *[0] * (len(texts) - 1)), own),
    )
    size = sum(map(len, payloads))
    sizes = tuple(map(len, payloads))
    return NewBatch(VCHANNEL, 2, b"".join(payloads), size, sizes=sizes, part=part)


async def create(world: World, limit: DeliveryLimit | None = LIMIT) -> None:
    request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False, limit=limit)
    answer = await (await keeper(world)).ask(request, deadline_s=60)
    assert isinstance(answer, GroupView), answer


async def dead(world: World) -> list[Letter]:
    """What is in the dead letters now."""
    reader = Reader(world, DEAD)
    end = (await world.offsets()).next_id
    found: list[Letter] = []
    while reader.cursor.next_id < end:
        answer = await reader.pull()
        assert not isinstance(answer, Refusal)
        found += letters_of(answer.items)
    return found


async def took(worker: Worker) -> tuple[int, list[str], bool]:
    """The next lease, its texts, and whether it is alone."""
    while True:
        leased = await worker.take()
        if leased.lease:
            found = [it.payload.decode() for it in letters_of(leased.items)]
            return leased.lease, found, leased.alone


async def settled(worker: Worker, request) -> Refusal | None:  # type: ignore[no-untyped-def]
    answer: Refusal | None = await worker.group.ask(request, deadline_s=60)
    return answer


async def nothing_dies(world: World) -> None:
    """Until all copies are written."""
    while (await shown(world)).group.dying:
        await world.clock.sleep(0.1)


def test_after_its_deliveries_the_poison_dies_and_its_neighbours_do_not() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            (landed,) = appended(await world.append(rows("a", "poison", "b")))
            done: list[str] = []
            times: list[int] = []
            for _ in range(20):
                worker = await join(world)
                leased = await worker.take()
                if not leased.lease:
                    break
                found = [it.payload.decode() for it in letters_of(leased.items)]
                times.append(leased.times)
                if leased.alone:
                    assert len(found) == 1
                    begin = BeginLease(worker.joined.member, leased.lease)
                    assert await settled(worker, begin) is None
                if "poison" in found:
                    worker.leave()  # it kills its member
                    continue
                done += found
                assert await worker.ack(leased.lease) is None
                worker.leave()
            assert sorted(done) == ["a", "b"]
            assert times == [1, 2, 3, 3, 3]
            await nothing_dies(world)
            (letter,) = await dead(world)
            assert letter.payload == b"poison"
            assert letter.properties == {
                "from": "Ulm",
                CAUSE: "delivered 3 times without an acknowledgement",
                DELIVERIES: "3",
                GROUP: "workers",
                ORIGIN: "trains",
                OF_VCHANNEL: VCHANNEL,
                ID: str(landed.id + 1),
                TICK: str(landed.tick + 1),
                "dead.type": "2",
            }
            view = (await shown(world)).group
            assert (view.acked, view.tried, view.dying) == ((), (), ())
            assert view.floor >= landed.tick + 2

    run_seeded(1, scenario)


@pytest.mark.parametrize("waited", [True, False])
def test_a_message_that_kills_the_node_dies_after_its_deliveries_too(waited: bool) -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            worker = await join(world) if waited else None
            if worker is not None:
                await world.append(rows("first"))
                lease, _, _ = await took(worker)
                assert await worker.ack(lease) is None
            await world.append(rows("poison", "a"))
            deliveries = 0
            for term in range(2, 30):
                worker = worker or await join(world)
                leased = await worker.take()
                if not leased.lease:
                    break
                found = [it.payload.decode() for it in letters_of(leased.items)]
                if leased.alone:
                    begin = BeginLease(worker.joined.member, leased.lease)
                    assert await settled(worker, begin) is None
                if "poison" in found:
                    deliveries += 1
                    assert await world.remove(term=2 * term) is None
                    assert await world.assign(term=2 * term + 1) is None
                    worker = None
                    continue
                assert await worker.ack(leased.lease) is None
                worker.leave()
                worker = None
            # The delivery of a message that was new to its Group leaves no trace. And what ends the
            # node in a last delivery may be another message, so there is one more.
            assert deliveries == LIMIT.deliveries_max + (2 if waited else 1)
            await nothing_dies(world)
            assert [it.payload for it in await dead(world)] == [b"poison"]

    run_seeded(1, scenario)


def test_a_last_delivery_that_has_not_begun_does_not_count() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await world.append(rows("a"))
            worker = await join(world)
            for _ in range(2):
                lease, _, alone = await took(worker)
                assert not alone
                assert await worker.nack(lease) is None
            for _ in range(5):
                lease, found, alone = await took(worker)
                assert (found, alone) == (["a"], True)
                worker.leave()
                worker = await join(world)
            lease, _, _ = await took(worker)
            begin = BeginLease(worker.joined.member, lease)
            assert await settled(worker, begin) is None
            assert await settled(worker, begin) is None
            late = BeginLease(worker.joined.member, lease + 1)
            assert isinstance(await settled(worker, late), Refusal)
            assert await worker.ack(lease) is None
            assert await dead(world) == []

    run_seeded(1, scenario)


def test_a_member_rejects_messages_at_once_with_a_cause() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            first, second = appended(await world.append(rows("a", "b", "c"), rows("d")))
            worker = await join(world)
            lease, found, _ = await took(worker)
            assert found == ["a", "b", "c", "d"]
            member = worker.joined.member
            spans = (TickSpan(first.tick, TimeTick(first.tick + 1)),)
            assert await settled(worker, RejectMessages(member, lease, spans, "bad seat")) is None
            again = await settled(worker, RejectMessages(member, lease, spans, "bad seat"))
            assert isinstance(again, Refusal)
            long = await settled(worker, RejectMessages(member, lease, (), "x" * 2000))
            assert isinstance(long, Refusal)
            assert "2000 characters" in long.cause
            assert await worker.ack(lease) is None
            await nothing_dies(world)
            (letter,) = await dead(world)
            assert (letter.payload, letter.properties[CAUSE]) == (b"b", "bad seat")
            assert (await shown(world)).group.floor >= second.tick

    run_seeded(1, scenario)


def test_a_copy_has_the_key_and_the_properties_of_its_message() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await world.append(rows("a", "b"))
            worker = await join(world)
            lease, _, _ = await took(worker)
            request = RejectMessages(worker.joined.member, lease, (), "all of it")
            assert await settled(worker, request) is None
            await nothing_dies(world)
            a, b = await dead(world)
            assert (a.key, b.key) == (b"ic", None)
            assert a.properties.keys() - MARKS == {"from", "seat"}
            assert b.properties.keys() - MARKS == {"from"}

    run_seeded(1, scenario)


def test_bad_limits_are_refused_and_a_group_without_one_has_no_dead_letters() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            door = await keeper(world)
            for bad in (
                DeliveryLimit(1, DEAD, "trains"),
                DeliveryLimit(1001, DEAD, "trains"),
                DeliveryLimit(5, f"{OTHER}_8v0", "trains"),
            ):
                request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False, limit=bad)
                refusal = await door.ask(request, deadline_s=60)
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.INVALID_ARGUMENT
            unknown = await door.ask(AlterGroup(KEY, None, LIMIT), deadline_s=60)
            assert isinstance(unknown, Refusal)
            await create(world, None)
            await world.append(rows("a"))
            worker = await join(world)
            lease, _, _ = await took(worker)
            refusal = await settled(worker, RejectMessages(worker.joined.member, lease, (), "no"))
            assert isinstance(refusal, Refusal)
            assert "no dead letters" in refusal.cause
            busy = await door.ask(AlterGroup(KEY, None, LIMIT), deadline_s=60)
            assert isinstance(busy, Refusal)
            assert busy.code is StreamingCode.RESOURCE_ACQUIRED
            worker.leave()
            view = await door.ask(AlterGroup(KEY, 5000, LIMIT), deadline_s=60)
            assert isinstance(view, GroupView)
            assert (view.group.lease_ms, view.group.limit) == (5000, LIMIT)

    run_seeded(1, scenario)


def test_what_cannot_be_copied_waits_and_is_delivered_again_without_a_limit() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            # A name that no log takes: as if the dead letters were gone.
            await create(world, DeliveryLimit(2, f"{PCHANNEL}_8v0", "trains"))
            await world.append(rows("a"))
            worker = await join(world)
            lease, _, _ = await took(worker)
            gone = world.node.open_channels.find(PCHANNEL)
            assert gone is not None
            refused = world.node.headers

            class Broken:
                """No copy can be made."""

                def __getattr__(self, name: str) -> object:
                    if name == "letters":
                        raise ActorError("no letters")
                    return getattr(refused, name)

            object.__setattr__(world.node, "headers", Broken())
            request = RejectMessages(worker.joined.member, lease, (), "bad")
            assert await settled(worker, request) is None
            while not (await shown(world)).trouble:
                await world.clock.sleep(0.1)
            assert "no letters" in (await shown(world)).trouble
            worker.leave()
            altered = await (await keeper(world)).ask(AlterGroup(KEY, None, None), deadline_s=60)
            assert isinstance(altered, GroupView)
            object.__setattr__(world.node, "headers", refused)
            worker = await join(world)
            lease, found, _ = await took(worker)
            assert found == ["a"]
            assert (await shown(world)).trouble == ""

    run_seeded(1, scenario)


def test_dead_letters_of_a_full_collection_wait_until_it_takes_more() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await world.append(rows("a"))
            world.node.storage.now = uses_of([StorageUse("dead", 5, {DEAD: 5})])
            worker = await join(world)
            lease, _, _ = await took(worker)
            request = RejectMessages(worker.joined.member, lease, (), "bad")
            assert await settled(worker, request) is None
            while not (await shown(world)).trouble:
                await world.clock.sleep(0.1)
            assert "collection 'dead' has 5 bytes stored" in (await shown(world)).trouble
            await world.clock.sleep(PAUSE_S[1])
            before = (await world.offsets()).next_id
            await world.clock.sleep(3 * PAUSE_S[1])
            assert (await world.offsets()).next_id == before, "a try writes nothing"
            assert await dead(world) == []
            world.node.storage.now = uses_of([])
            await nothing_dies(world)
            assert [it.payload for it in await dead(world)] == [b"a"]

    run_seeded(1, scenario)
