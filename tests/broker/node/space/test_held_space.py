"""What somebody holds is not given back, what nobody needs is, and no pchannel waits for others."""

from collections.abc import Collection, Mapping, Sequence

from actors.testing import run_seeded
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import MessageId, PChannelName, TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.record import Record
from broker.model.retention.holders import Hold, HolderKind
from broker.model.retention.policy import LogStart
from broker.model.txn import TxnContext
from broker.node.appender_messages import SealLog
from broker.node.scanner_messages import Delivery
from broker.node.state.node_limits import NodeLimits
from broker.ports.holds import NoHolds
from broker.ports.row_schemas import CatalogVersion
from broker.ports.wal import WalError
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_reclamation import (
    BODY,
    DROPPED,
    KEPT,
    SEGMENT_BYTES,
    CatalogFake,
    Stubborn,
    StubbornWal,
    fill,
    size,
    statistics,
)
from tests.broker.node.world import OTHER, PCHANNEL, Reader, World, message, running_node

LIMITS = NodeLimits(
    retention_period_s=1.0,
    tail_age_s=0.5,
    tail_bytes_max=1 << 14,
    snapshot_records=1,
    snapshot_look_s=0.2,
    hold_bytes_max=1 << 30,
)


class HoldsOf(NoHolds):
    """What the coordinator says of cursors."""

    def __init__(self, *holds: Hold) -> None:
        self.holds = list(holds)

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        return dict.fromkeys(starts, self.holds)


def given_back_with(
    seed: int, *holds: Hold, limits: NodeLimits = LIMITS, then: Collection[Hold] | None = None
) -> list[float]:
    """The share of the log that is left, with these holds, and after they became others."""
    found: list[float] = []

    async def scenario() -> None:
        catalog, held = CatalogFake(), HoldsOf(*holds)
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, limits, catalog=catalog, holds=held) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            found.append(await size(world) / before)
            if then is not None:
                held.holds = list(then)
                await world.clock.sleep(10)
                found.append(await size(world) / before)

    run_seeded(seed, scenario)
    return found


def cursor(from_id: int, *vchannels: str, bytes_max: int | None = None) -> Hold:
    return Hold(
        HolderKind.CURSOR,
        "slow",
        from_id=MessageId(from_id),
        bytes_max=bytes_max,
        vchannels=frozenset(vchannels),
    )


def test_what_a_holder_of_the_whole_pchannel_needs_waits_until_it_has_moved_on() -> None:
    held, free = given_back_with(1, cursor(1), then=())
    assert held >= 1
    assert free < 0.3


def test_what_lies_before_a_hold_is_given_back_and_the_rest_stays() -> None:
    half, free = given_back_with(2, cursor(60), then=(cursor(1 << 40),))
    assert 0.4 < half < 0.8
    assert free < 0.3


def test_holders_of_other_vchannels_and_cursors_of_the_dropped_collection_hold_nothing() -> None:
    assert given_back_with(3, cursor(1, KEPT), cursor(1, DROPPED))[0] < 0.3


def test_a_holder_beyond_its_limit_holds_nothing() -> None:
    assert given_back_with(4, cursor(1, bytes_max=1000))[0] < 0.3


def test_an_open_reader_of_the_dropped_collection_gets_all_of_it() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            slow, other = Reader(world, DROPPED), Reader(world, KEPT)
            for reader in (slow, other):
                assert isinstance(await reader.pull(bytes_max=5000), Delivery)
            catalog.drop(DROPPED)
            for _ in range(5):
                await world.clock.sleep(3)
                for reader in (slow, other):
                    assert isinstance(await reader.pull(bytes_max=5000), Delivery)
            assert await size(world) > 0.9 * before
            assert int(statistics(world)["held_segments"]) > 0
            await slow.read_until((await world.offsets()).next_id - 1)
            assert len(slow.messages) == 80
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            assert statistics(world)["held_segments"] == 0

    run_seeded(5, scenario)


def test_of_many_groups_only_those_of_the_dropped_collection_matter_and_they_hold_nothing() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            (opened,) = world.node.open_channels.all()
            for vchannel in (KEPT, DROPPED):
                key, at = GroupKey(vchannel, "workers"), TimeTick(1)
                saved = GroupSnapshot(key, 30_000, at, (), at, at)
                opened.groups.table.groups |= type(opened.groups.table)([saved]).groups
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before

    run_seeded(6, scenario)


class Restless(CatalogFake):
    """Somebody drops a collection before each look; after `looks` the store is away."""

    looks = 0

    async def version(self) -> CatalogVersion:
        if self.drops:
            self.drops += 1
            Restless.looks -= 1
            self.away = "" if Restless.looks > 0 else "the store is away"
        return await super().version()


def left_after(looks: int, seed: int) -> list[float]:
    """The share of each of two logs that is left when a node has looked so often for drops."""
    found: list[float] = []

    async def scenario() -> None:
        Restless.looks = looks
        catalog = Restless()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            for name in (PCHANNEL, OTHER):
                await world.assign(name)
            for number in range(100):
                for name in (PCHANNEL, OTHER):
                    one = message(BODY, shard=int(number % 5 == 0))
                    vchannel = one.vchannel.replace(PCHANNEL, name)
                    await world.append(type(one)(vchannel, one.type, one.body, one.size), name=name)
            await world.clock.sleep(1)
            before = {it: (await world.offsets(it)).size_bytes for it in (PCHANNEL, OTHER)}
            catalog.drop(DROPPED, DROPPED.replace(PCHANNEL, OTHER))
            await world.clock.sleep(10)
            found.extend([(await world.offsets(it)).size_bytes / before[it] for it in before])

    run_seeded(seed, scenario)
    return found


def test_drops_that_keep_coming_do_not_keep_a_pass_from_its_end() -> None:
    assert max(left_after(100, seed=7)) < 0.3


def test_pchannels_take_turns() -> None:
    one, other = left_after(9, seed=8)
    assert 0.2 < one < 0.8
    assert abs(one - other) < 0.2


def test_segments_that_a_full_disk_kept_when_their_holder_had_moved_on_are_tried_again() -> None:
    async def scenario() -> None:
        Stubborn.failure, Stubborn.failures = WalError("No space left on device"), 0
        catalog, held = CatalogFake(), HoldsOf(cursor(1))
        wal = StubbornWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog, holds=held) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert int(statistics(world)["held_segments"]) > 1
            Stubborn.failures = 3
            held.holds = []
            await world.clock.sleep(30)
            assert statistics(world)["failures"] == 3
            assert await size(world) < 0.3 * before
            assert statistics(world)["held_segments"] == 0

    run_seeded(10, scenario)


class SealsWhenAsked(HoldsOf):
    """While holders are asked, the log is sealed, as for another actor; so many times."""

    world: World | None = None
    seals = 0

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        if self.world is not None and self.seals:
            self.seals -= 1
            (channel,) = self.world.node.open_channels.all()
            channel.appender.tell(SealLog())
            await self.world.clock.sleep(0.01)
        return await super().of(starts)


def test_segments_that_cannot_be_rewritten_right_after_a_seal_are_rewritten_later() -> None:
    async def scenario() -> None:
        catalog, held = CatalogFake(), SealsWhenAsked()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog, holds=held) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            held.world, held.seals = world, 100
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert held.seals < 100
            assert statistics(world)["failures"] == 0
            held.seals = 0
            await world.append(message("behind the seal"))
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before

    run_seeded(11, scenario)


class Lossy(MemoryLog):
    """A log that loses the record at an id, as damage that is skipped does."""

    lost = MessageId(0)

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        found = await super().read(from_id, bytes_max)
        return [it for it in found if it.base_id != Lossy.lost]


class LossyWal(MemoryWal):
    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        opened = await super().open(channel, term)
        opened.__class__ = Lossy
        return opened


def test_a_lost_message_of_a_living_transaction_is_told_although_space_was_given_back() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = LossyWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            begin = message(shard=1, kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            (body,) = await world.append(message("lost", shard=1, txn=begun.txn))
            assert isinstance(body, AppendedInTxn)
            end = message(shard=1, kind=MessageType.COMMIT_TXN, txn=begun.txn)
            await world.append(end)
            await fill(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert int(statistics(world)["given_back_bytes"]) > 100_000
            Lossy.lost = body.id
            for vchannel in ("", KEPT):
                answer = await last_answer(Reader(world, vchannel))
                assert isinstance(answer, Refusal)
                assert "1 bodies" in answer.cause or "0 were read" in answer.cause
            assert KEPT not in catalog.gone

    run_seeded(8, scenario)


def test_a_reader_of_everything_passes_over_what_is_left_of_a_dropped_transaction() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = LossyWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            (body,) = await world.append(message("given back", txn=begun.txn))
            assert isinstance(body, AppendedInTxn)
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            await fill(world, 10)
            await world.clock.sleep(5)
            Lossy.lost = body.id
            answer = await last_answer(Reader(world))
            assert isinstance(answer, Refusal), "nothing was dropped"
            catalog.drop(DROPPED)
            catalog.away = "the store is away"
            answer = await last_answer(Reader(world))
            assert isinstance(answer, Refusal)
            assert "the store is away" in answer.cause
            catalog.away = ""
            reader = Reader(world)
            await reader.read_until((await world.offsets()).next_id - 1)
            found = [it.body for it in reader.messages]
            assert found == [BODY.encode()] * 10

    run_seeded(9, scenario)


async def last_answer(reader: Reader) -> Delivery | Refusal:
    """The refusal that it meets, or the answer without a message."""
    while True:
        count = len(reader.events)
        answer = await reader.pull()
        if isinstance(answer, Refusal) or len(reader.events) == count:
            return answer
