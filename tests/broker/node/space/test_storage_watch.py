"""Limits of storage on a node: what counts, when it is refused, and what nodes tell each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.core.pressure.limit_rules import parsed_limits
from broker.model.failure import Refused, StreamingCode
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.model.retention.purge import Purge
from broker.node.state.node_limits import NodeLimits
from broker.node.state.open_channels import OpenChannel
from broker.ports.row_schemas import NoRowSchemas, NoShard, Shard
from broker.ports.space.collection_sizes import NamedShards, ToldSizes
from broker.ports.wal import Corrupt, WriterFailed
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, OTHERS, land, purge
from tests.broker.node.space.test_readers_of_purged import MovedWal
from tests.broker.node.space.test_reclamation import BODY, SEGMENT_BYTES, fill
from tests.broker.node.world import OTHER, PCHANNEL, World, message, running_node

ELSEWHERE = f"{OTHER}_7v2"
NAMED = {("", "clicks"): [MINE, ELSEWHERE], ("", "others"): [OTHERS]}


class SizesFake:
    """What nodes tell each other; `away`: nobody answers."""

    def __init__(self) -> None:
        self.told = ToldSizes(1, {})
        self.named = NamedShards(1, NAMED)
        self.away = ""
        self.tells = 0

    def say(self, sizes: Mapping[str, int]) -> None:
        self.told = ToldSizes(self.told.revision + 1, {**self.told.bytes, **sizes})

    async def shards(self, revision: int) -> NamedShards | None:
        self._answer()
        return None if revision == self.named.revision else self.named

    async def newer(self, revision: int) -> ToldSizes | None:
        self._answer()
        return None if revision == self.told.revision else self.told

    async def of(self, vchannels: Sequence[str]) -> int:
        return sum(self.told.bytes.get(it, 0) for it in vchannels)

    async def tell(self, figures: Mapping[str, int], gone: Sequence[str]) -> None:
        self._answer()
        self.tells += 1
        self.say(figures)
        left = {it: size for it, size in self.told.bytes.items() if it not in gone}
        self.told = replace(self.told, bytes=left)

    def _answer(self) -> None:
        if self.away:
            raise Refused(StreamingCode.INNER, self.away)


class OneDropped(NoRowSchemas):
    """A catalog in which collection 7 was dropped, or was found only now."""

    def __init__(self, answer: Shard | NoShard) -> None:
        self.answer = answer

    async def shard(self, vchannel: str) -> Shard | NoShard:
        return self.answer


def limited(text: str) -> NodeLimits:
    return replace(LIMITS, storage=parsed_limits(text))


def channel(world: World) -> OpenChannel:
    (found,) = world.node.open_channels.all()
    return found


def stored(world: World, vchannel: str = MINE) -> int:
    """By the log itself."""
    log = channel(world).log
    assert isinstance(log, MemoryLog)
    return sum(
        68 + len(it.vchannel) + 4 * len(it.sizes) + len(it.body)
        for it in log._stored.records
        if it.vchannel == vchannel
    )


def figure(world: World, collection: str = "clicks") -> int:
    (found,) = [it.total for it in world.node.storage.now.uses if it.collection == collection]
    return found


def statistics(world: World, actor: str = "storage_watch") -> dict[str, int | float | str]:
    (found,) = [it.extra for it in world.system.statistics() if it.path == f"/root/node/{actor}"]
    return dict(found)


def test_what_was_stored_before_and_is_appended_counts_within_a_second() -> None:
    async def scenario() -> None:
        sizes = SizesFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, sizes=sizes) as world:
            await world.assign()
            await fill(world)
            assert not channel(world).sizes.counting
            world.node.adopt(limited("collection:clicks storage=1MiB"))
            await world.clock.sleep(5)
            assert figure(world) == stored(world) > 300_000
            assert statistics(world, "size_reader")["segments_left"] == 0
            read = statistics(world, "size_reader")["segments_read"]
            await fill(world)
            await world.clock.sleep(2)
            assert figure(world) == stored(world) > 600_000
            assert statistics(world, "size_reader")["segments_read"] == read, "it was counted"
            assert world.node.storage.refusal(MINE) is None
            await fill(world)
            await fill(world)
            await world.clock.sleep(2)
            refused = world.node.storage.refusal(MINE)
            assert refused is not None
            assert "collection 'clicks' has" in refused.cause
            assert world.node.storage.refusal(ELSEWHERE) == refused
            assert world.node.storage.refusal(OTHERS) is None
            assert any("'clicks' has" in it for it in world.node.warnings())
            assert statistics(world) == {"collections": 1, "over": 1, "failures": 0}

    run_seeded(1, scenario)


def test_a_purge_a_higher_limit_and_none_end_the_refusal() -> None:
    async def scenario() -> None:
        limits = limited("collection:clicks storage=200000")
        async with running_node(MemoryWal(), limits, sizes=SizesFake()) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is not None
            world.node.adopt(limited("collection:clicks storage=1GiB"))
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is None
            world.node.adopt(limits)
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is not None
            (kept,) = await land(world, "last")
            done = await purge(world, kept.tick)
            assert isinstance(done, Purge), done
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is None
            await fill(world)
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is not None
            world.node.adopt(LIMITS)
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is None
            assert not channel(world).sizes.counting

    run_seeded(2, scenario)


def test_what_a_purge_leaves_of_a_segment_is_counted_by_its_heads() -> None:
    async def scenario() -> None:
        limits = limited("collection:clicks storage=400000")
        async with running_node(MemoryWal(), LIMITS, sizes=SizesFake()) as world:
            await world.assign()
            for _ in range(200):
                await world.append(message("small"))
            (middle,) = await land(world, "small")
            await fill(world)
            world.node.adopt(limits)
            await world.clock.sleep(3)
            done = await purge(world, middle.tick)
            assert isinstance(done, Purge), done
            await world.clock.sleep(3)
            large = [it for it in channel_records(world) if it >= len(BODY)]
            assert sum(large) < figure(world) < 1.1 * sum(large)

    run_seeded(3, scenario)


def channel_records(world: World) -> list[int]:
    log = channel(world).log
    assert isinstance(log, MemoryLog)
    records = log._stored.records
    return [len(it.body) for it in records if it.vchannel == MINE]


def test_other_nodes_count_and_are_told_by_a_share_of_the_limit() -> None:
    async def scenario() -> None:
        sizes = SizesFake()
        limits = limited("collection:clicks storage=1MiB")
        async with running_node(MemoryWal(), limits, sizes=sizes) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(3)
            assert sizes.told.bytes[MINE] == stored(world)
            tells = sizes.tells
            await land(world, "one")
            await world.clock.sleep(3)
            assert sizes.tells == tells, "hardly anything has changed"
            await world.clock.sleep(10)
            assert sizes.told.bytes[MINE] == stored(world)
            sizes.say({ELSEWHERE: 1 << 20})
            await world.clock.sleep(1.5)
            assert figure(world) == stored(world) + (1 << 20)
            assert world.node.storage.refusal(MINE) is not None
            world.node.adopt(LIMITS)
            await world.clock.sleep(1.5)
            assert sizes.told.bytes == {ELSEWHERE: 1 << 20}, "each forgets its own"

    run_seeded(4, scenario)


def test_after_a_start_what_was_told_before_counts_until_the_log_is_read() -> None:
    async def scenario() -> None:
        sizes, wal = SizesFake(), MemoryWal()
        limits = limited("collection:clicks storage=100000")
        async with running_node(wal, limits, sizes=sizes) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(3)
        async with running_node(wal, limits, sizes=sizes) as world:
            await world.clock.sleep(1.5)
            assert world.node.storage.refusal(MINE) is not None, "nothing is open yet"
            await world.assign(term=5)
            await world.clock.sleep(3)
            assert world.node.storage.refusal(MINE) is not None
            assert channel(world).sizes.complete

    run_seeded(5, scenario)


@pytest.mark.parametrize(
    ("answer", "found"), [(NoShard.OTHER, ["7"]), (NoShard.DROPPED, []), (Shard("x", False), [])]
)
def test_a_collection_that_the_catalog_does_not_have_goes_by_its_id(
    answer: Shard | NoShard, found: list[str]
) -> None:
    async def scenario() -> None:
        sizes = SizesFake()
        sizes.named = NamedShards(1, {})
        limits = limited("collection:7 storage=100000")
        catalog = OneDropped(answer)
        async with running_node(MemoryWal(), limits, sizes=sizes, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(3)
            assert [it.collection for it in world.node.storage.now.uses] == found
            assert (world.node.storage.refusal(OTHERS) is not None) is bool(found)

    run_seeded(6, scenario)


def test_while_nobody_answers_the_last_figures_hold_and_the_reason_is_told() -> None:
    async def scenario() -> None:
        sizes = SizesFake()
        limits = limited("collection:clicks storage=2MiB")
        async with running_node(MemoryWal(), limits, sizes=sizes) as world:
            await world.assign()
            sizes.say({ELSEWHERE: (2 << 20) - 100_000})
            await world.clock.sleep(3)
            assert world.node.storage.refusal(MINE) is None
            sizes.away = "the store is away"
            await fill(world)
            await world.clock.sleep(2)
            assert world.node.storage.refusal(MINE) is not None, "what is appended here counts"
            assert "the store is away" in str(statistics(world)["error"])
            sizes.away = ""
            await world.clock.sleep(2)
            assert "error" not in statistics(world)

    run_seeded(7, scenario)


class FailingLog(MemoryLog):
    """A log of which nothing can be read, for some time, or that is damaged."""

    failures = 3
    damaged = False

    async def contents(self, segment: SealedSegment | None) -> Contents:
        if self.damaged:
            raise Corrupt("a.log", 5, "the checksum is wrong")
        if FailingLog.failures:
            FailingLog.failures -= 1
            raise WriterFailed("the disk is slow")
        return await super().contents(segment)


class FailingWal(MemoryWal):
    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        opened = await super().open(channel, term)
        opened.__class__ = FailingLog
        return opened


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_that_cannot_be_read_is_tried_again_and_a_damaged_segment_is_left_out(
    damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingLog, "failures", 3)
    monkeypatch.setattr(FailingLog, "damaged", damaged)

    async def scenario() -> None:
        wal = FailingWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, sizes=SizesFake()) as world:
            await world.assign()
            await fill(world)
            world.node.adopt(limited("collection:clicks storage=1MiB"))
            await world.clock.sleep(30)
            assert statistics(world, "size_reader")["failures"] == (0 if damaged else 3)
            assert channel(world).sizes.complete
            assert figure(world) == (0 if damaged else stored(world))
            await fill(world)
            await world.clock.sleep(2)
            assert figure(world) > 300_000

    run_seeded(8, scenario)


def test_a_log_without_a_collection_with_a_limit_is_not_counted() -> None:
    async def scenario() -> None:
        sizes = SizesFake()
        limits = limited("collection:clicks storage=1MiB; collection:others in_bytes=5")
        async with running_node(MemoryWal(), limits, sizes=sizes) as world:
            await world.assign()
            await world.assign(OTHER)
            sizes.named = NamedShards(2, {("", "clicks"): [ELSEWHERE]})
            await world.clock.sleep(3)
            mine, other = (world.node.open_channels.find(it) for it in (PCHANNEL, OTHER))
            assert mine is not None
            assert other is not None
            assert not mine.sizes.counting
            assert other.sizes.counting
            world.node.adopt(limited("collection:* storage=1MiB"))
            await world.clock.sleep(3)
            assert mine.sizes.complete

    run_seeded(9, scenario)


def test_where_a_purge_cuts_a_small_part_of_the_limit_an_estimate_does() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(), LIMITS, sizes=SizesFake()) as world:
            await world.assign()
            first = await land(world, *[f"m{it}" for it in range(10)])
            world.node.adopt(limited("collection:clicks storage=1GiB"))
            await world.clock.sleep(3)
            whole = figure(world)
            done = await purge(world, first[4].tick)
            assert isinstance(done, Purge), done
            await world.clock.sleep(3)
            assert 0 < figure(world) < whole
            assert channel(world).sizes.straddled == []

    run_seeded(10, scenario)


def test_while_a_log_is_moved_its_figures_stay_and_later_they_are_right() -> None:
    async def scenario() -> None:
        wal = MovedWal()
        limits = limited("collection:clicks storage=300000")
        async with running_node(wal, limits, sizes=SizesFake()) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(3)
            before = figure(world)
            assert world.node.storage.refusal(MINE) is not None
            (log,) = wal.logs
            await log.hold()
            await world.clock.sleep(5)
            assert figure(world) == before
            assert world.node.storage.refusal(MINE) is not None
            log.release()
            await world.clock.sleep(5)
            assert figure(world) == before

    run_seeded(11, scenario)
