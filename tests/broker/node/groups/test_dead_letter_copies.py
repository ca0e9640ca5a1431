"""Copies of dead letters: whatever dies meanwhile, each message has one, and no other has."""

import asyncio
import random
from base64 import b64encode
from dataclasses import replace

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.codec.letters import copies, letters_of
from broker.core.groups.group_changes import MessagesDying, encode_change
from broker.model.batch import BatchPart, NewBatch
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.groups.dead_letter import GROUP, ID, Death, Letter
from broker.model.groups.dead_letter import VCHANNEL as OF_VCHANNEL
from broker.model.ids import CollectionId, TimeTick
from broker.model.message import GROUP_CHANGE, NewMessage
from broker.model.retention.compaction import Compaction
from broker.node.group_messages import (
    AckMessages,
    BeginLease,
    DropGroup,
    ListGroups,
    NackMessages,
    OpenGroup,
    RejectMessages,
    TakeMessages,
)
from broker.node.groups.group_writer import GroupWriter
from broker.wal.memory_wal import MemoryWal
from schemas.batches import shared_properties
from schemas.properties.keys import DEAD_COPY
from tests.broker.node.compaction.keyed_world import LIMITS, CompactedCatalog, keyed
from tests.broker.node.groups.test_dead_letters import (
    DEAD,
    LIMIT,
    create,
    dead,
    nothing_dies,
    rows,
    settled,
    took,
)
from tests.broker.node.groups.test_group_leases import KEY, VCHANNEL, Worker, join, keeper, shown
from tests.broker.node.world import Reader, World, appended, running_node


class Storm:
    """Members that nack poison, hold it, or die of it; actors die and the channel moves."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed, self.rng = world, seed, random.Random(seed)
        self.texts = [f"m{it}" for it in range(40)]
        self.poison = {it for it in self.texts if self.rng.random() < 0.15} | {"m7"}
        self.acked: set[str] = set()
        self.doubtful: set[str] = set()
        """Those whose acknowledgement was sent, and may have been refused."""

    async def member(self, own: random.Random) -> None:
        while True:
            try:
                worker = await join(self.world)
                while await self.lives_on(worker, own):
                    pass
            except ActorError:
                await self.world.clock.sleep(0.2)

    async def lives_on(self, worker: Worker, own: random.Random) -> bool:
        member = worker.joined.member
        take = TakeMessages(member, own.choice([1, 60, 1 << 20]))
        answer = await worker.group.ask(take, deadline_s=60)
        assert not isinstance(answer, Refusal)
        found = [it.payload.decode() for it in letters_of(answer.items)]
        assert not set(found) & self.acked, "delivered after its acknowledgement"
        if answer.alone:
            assert len(found) == 1
            if await settled(worker, BeginLease(member, answer.lease)) is not None:
                return True
        if self.poison & set(found):
            return await self.fails(worker, answer.lease, own)
        self.doubtful.update(found)
        if found and await settled(worker, AckMessages(member, answer.lease, ())) is None:
            self.acked.update(found)
        return True

    async def fails(self, worker: Worker, lease: int, own: random.Random) -> bool:
        match own.randrange(3):
            case 0:
                worker.leave()
                return False
            case 1:
                await settled(worker, NackMessages(worker.joined.member, lease, (), 10))
            case _:
                await self.world.clock.sleep(2.0)
        return True

    async def kill(self) -> None:
        term, world = 1, self.world
        for _ in range(12):
            await world.clock.sleep(self.rng.uniform(0.1, 2.0))
            kind = self.rng.choice(["/appender", "~dead", "/groups/", "/scanners/", "move"])
            if kind == "move":
                term += 100
                await world.remove(term=term)
                await world.assign(term=term + 1)
                continue
            paths = [it.path for it in world.system.statistics() if "/log/" in it.path]
            found = [it for it in paths if kind in it]
            if found:
                world.system.kill(self.rng.choice(found))

    async def over(self) -> bool:
        try:
            view = (await shown(self.world)).group
        except ActorError:
            return False
        if view.acked or view.dying:
            return False
        return len(await dead(self.world)) >= len(self.poison)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_dies_each_message_is_processed_or_a_dead_letter_once(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            storm = Storm(world, seed)
            await world.assign()
            await create(world)
            for at in range(0, 40, 4):
                appended(await world.append(rows(*storm.texts[at : at + 4])))
            async with asyncio.TaskGroup() as tasks:
                members = [
                    tasks.create_task(storm.member(random.Random(f"{seed} {it}")))
                    for it in range(2)
                ]
                await storm.kill()
                while not await storm.over():
                    await world.clock.sleep(1)
                for each in members:
                    each.cancel()
            letters = [it.payload.decode() for it in await dead(world)]
        assert sorted(letters) == sorted(set(letters)), "a dead letter twice"
        assert storm.poison <= set(letters)
        assert not set(letters) & storm.acked
        assert storm.acked | storm.doubtful | set(letters) == set(storm.texts)

    run_seeded(seed, scenario)


def test_what_was_dying_when_the_channel_moved_is_copied_without_members() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await world.append(rows("a", "b"))
            worker = await join(world)
            lease, _, _ = await took(worker)
            request = RejectMessages(worker.joined.member, lease, (), "bad")
            assert await settled(worker, request) is None
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            await nothing_dies(world)
            assert [it.payload for it in await dead(world)] == [b"a", b"b"]
            assert await (await keeper(world)).ask(DropGroup(KEY), deadline_s=60) is None

    run_seeded(1, scenario)


def test_a_copy_by_a_release_without_marks_is_one_and_what_says_something_else_is_none() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await world.append(rows("a", "b", "c"))
            reader, letters = Reader(world, VCHANNEL), list[Letter]()
            while len(letters) < 3:
                answer = await reader.pull()
                assert not isinstance(answer, Refusal)
                letters += letters_of(answer.items)
            # An older release decides that they die, copies two of them, and dies itself.
            span = TickSpan(TimeTick(0), letters[-1].tick)
            body = encode_change(MessagesDying(KEY.name, (span,), "bad", 1))
            await world.append(NewMessage(VCHANNEL, GROUP_CHANGE, body, len(body)))
            marks = Death(KEY, LIMIT.origin, "bad", 1).marks
            a, b = (copies(DEAD, [(it, marks(it))]) for it in letters[:2])
            await world.append(_unmarked(a), _unmarked(replace(b, body=b"B")))
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            await nothing_dies(world)
            found = [(it.payload, it.is_copy) for it in await dead(world)]
            assert found == [(b"a", False), (b"B", False), (b"b", True), (b"c", True)]

    run_seeded(1, scenario)


def test_a_copy_stays_in_a_compacted_collection_until_all_are_copied() -> None:
    """Else its message would be copied once more, as the newest one of its key."""

    async def scenario() -> None:
        catalog = CompactedCatalog()
        catalog.policies = {CollectionId(8): Compaction()}
        wal = MemoryWal(segment_bytes=2000)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await create(world)
            for text in "ab":
                appended(await world.append(rows(text)))
            reader, letters = Reader(world, VCHANNEL), list[Letter]()
            while len(letters) < 2:
                answer = await reader.pull()
                assert not isinstance(answer, Refusal)
                letters += letters_of(answer.items)
            # One is copied when its node dies; then a program appends the same key.
            span = TickSpan(TimeTick(0), letters[-1].tick)
            (channel,) = world.node.open_channels.all()
            writer = GroupWriter(channel, world.node, world.clock)
            dying = MessagesDying(KEY.name, (span,), "bad", 1)
            assert await writer.write(VCHANNEL, dying) is None
            marks = Death(KEY, LIMIT.origin, "bad", 1).marks
            await world.append(copies(DEAD, [(letters[0], marks(letters[0]))]))
            key = letters[0].key
            await supersede(world, key)
            await world.clock.sleep(20)
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            await nothing_dies(world)
            found = [it.payload for it in await dead(world)]
            assert [found[0], found[-1]] == [b"a", b"b"], "the copy of a is the old one"
            assert found.count(b"a") == 1
            await supersede(world, key)
            await world.clock.sleep(60)
            left = [it.payload for it in await dead(world)]
            assert len(left) < len(found), "compacted again"
            assert b"a" not in left

    run_seeded(1, scenario)


async def supersede(world: World, key: bytes | None) -> None:
    for number in range(40):
        await world.append(keyed([(key, b"%03d" % number * 100)], vchannel=DEAD))


def _unmarked(batch: NewBatch) -> NewBatch:
    assert batch.part is not None
    first = shared_properties(DEAD_COPY.entry().items())
    assert batch.part.properties.startswith(first)
    return replace(batch, part=replace(batch.part, properties=batch.part.properties[len(first) :]))


def test_the_key_of_another_group_marks_no_copy() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            marks = {GROUP: "others", OF_VCHANNEL: VCHANNEL, ID: "1", "k": b64encode(b"x").decode()}
            part = BatchPart(shared_properties(marks.items()))
            await world.append(NewBatch(DEAD, 2, b"z", 1, sizes=(1,), part=part))
            await world.append(rows("a"))
            worker = await join(world)
            lease, _, _ = await took(worker)
            request = RejectMessages(worker.joined.member, lease, (), "bad")
            assert await settled(worker, request) is None
            await nothing_dies(world)
            assert [it.payload for it in await dead(world)] == [b"z", b"a"]
            other = GroupKey(DEAD, "nobody")
            refusal = await (await keeper(world)).ask(OpenGroup(other), deadline_s=60)
            assert isinstance(refusal, Refusal)
            assert await (await keeper(world)).ask(ListGroups((DEAD,), ""), deadline_s=60) == ()

    run_seeded(1, scenario)
