"""When a node gives space back, and what it never gives back."""

from actors.testing import run_seeded
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import CollectionId, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import SealedSegment
from broker.model.txn import TxnContext
from broker.node.state.node_limits import NodeLimits
from broker.ports.row_schemas import CatalogVersion, NoRowSchemas
from broker.ports.wal import Corrupt, WalError
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node

LIMITS = NodeLimits(retention_period_s=1.0, tail_age_s=0.5, snapshot_records=1, snapshot_look_s=0.2)
SEGMENT_BYTES = 64 << 10
DROPPED, KEPT = f"{PCHANNEL}_7v0", f"{PCHANNEL}_7v1"
BODY = "x" * 4000


class CatalogFake(NoRowSchemas):
    """A catalog: `gone` are the vchannels of dropped collections."""

    def __init__(self, away: str = "") -> None:
        self.gone: dict[str, TimeTick] = {}
        self.drops, self.away = 0, away
        self.asked: list[str] = []

    async def version(self) -> CatalogVersion:
        self._answer()
        return CatalogVersion(self.drops, self.drops)

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        self._answer()
        self.asked.append(vchannel)
        return self.gone.get(vchannel)

    def drop(self, *vchannels: str, tick: int = 1 << 62) -> None:
        self.gone |= dict.fromkeys(vchannels, TimeTick(tick))
        self.drops += 1

    def _answer(self) -> None:
        if self.away:
            raise Refused(StreamingCode.INNER, self.away)


async def fill(world: World, count: int = 100) -> None:
    """Every fifth message is of the collection that is kept."""
    for number in range(count):
        await world.append(message(BODY, shard=int(number % 5 == 0)))
    await world.clock.sleep(1)


async def size(world: World) -> int:
    return (await world.offsets()).size_bytes


def statistics(world: World) -> dict[str, int | float | str]:
    (found,) = [it.extra for it in world.system.statistics() if it.path == "/root/node/reclamation"]
    return dict(found)


def test_a_dropped_collection_gives_its_space_back_and_the_other_one_keeps_every_message() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(5)
            before = await size(world)
            assert catalog.asked == [], "without a drop nothing is looked at"
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            assert int(statistics(world)["given_back_bytes"]) > 0.7 * before
            assert statistics(world)["pchannels_left"] == 0
            reader = Reader(world, KEPT)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [it.body for it in reader.messages] == [BODY.encode()] * 20
            asked = len(catalog.asked)
            await world.clock.sleep(10)
            assert len(catalog.asked) == asked, "nor is anything after it"

    run_seeded(1, scenario)


def test_a_restarted_node_goes_on_with_what_was_dropped_before() -> None:
    async def scenario() -> None:
        catalog, wal = CatalogFake(), MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
        catalog.drop(DROPPED)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign(term=5)
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            reader = Reader(world, KEPT)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert len(reader.messages) == 20

    run_seeded(2, scenario)


def test_an_open_transaction_stays_whole_and_what_follows_it_waits_for_its_end() -> None:
    """A restart replays from its begin on."""

    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("of the transaction", txn=begun.txn))
            await fill(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert statistics(world)["given_back_bytes"] == 0
            assert statistics(world)["pchannels_left"] == 1
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            reader = Reader(world, DROPPED)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert b"of the transaction" in [it.body for it in reader.messages]
            await world.clock.sleep(10)
            assert int(statistics(world)["given_back_bytes"]) > 100_000

    run_seeded(3, scenario)


def test_without_an_answer_nothing_is_given_back_and_it_is_tried_again() -> None:
    async def scenario() -> None:
        catalog = CatalogFake(away="the store is away")
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert await size(world) >= before
            assert "the store is away" in str(statistics(world)["error"])
            catalog.away = ""
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            assert "error" not in statistics(world)

    run_seeded(4, scenario)


def test_a_collection_that_the_log_knows_is_needed_whatever_the_catalog_says() -> None:
    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            (opened,) = world.node.open_channels.all()
            opened.segments.create_collection(DROPPED, CollectionId(7), (), 0)
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert await size(world) >= before

    run_seeded(5, scenario)


def test_what_is_appended_to_the_name_after_the_drop_stays() -> None:
    """By a client that names the vchannel itself: it was acknowledged."""

    async def scenario() -> None:
        catalog = CatalogFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            (landed,) = await world.append(message("the last before"))
            assert isinstance(landed, Appended)
            for number in range(30):
                await world.append(message(f"{BODY}{number}"))
            await world.clock.sleep(1)
            catalog.drop(DROPPED, tick=landed.tick)
            await world.clock.sleep(10)
            assert int(statistics(world)["given_back_bytes"]) > 100_000
            opened = await world.open_scanner(DROPPED)
            assert not isinstance(opened, Refusal)
            reader = Reader(world, DROPPED)
            reader.cursor = opened.cursor
            await reader.read_until((await world.offsets()).next_id - 1)
            found = [it.body for it in reader.messages]
            assert found[-30:] == [f"{BODY}{number}".encode() for number in range(30)]

    run_seeded(8, scenario)


class Stubborn(MemoryLog):
    """A log of which some segments cannot be rewritten: `failure` says why, for the first ones."""

    failure: WalError | None = None
    failures = 0

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        if Stubborn.failure is not None and Stubborn.failures:
            Stubborn.failures -= 1
            raise Stubborn.failure
        return await super().give_back(segment, dead)

    async def contents(self, segment: SealedSegment | None) -> Contents:
        return await super().contents(segment)


class StubbornWal(MemoryWal):
    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        opened = await super().open(channel, term)
        opened.__class__ = Stubborn
        return opened


def failing(failure: WalError, failures: int, seed: int) -> tuple[float, dict[str, object]]:
    """The share of the log that is left, and the statistics."""
    found: list[tuple[float, dict[str, object]]] = []

    async def scenario() -> None:
        Stubborn.failure, Stubborn.failures = failure, failures
        catalog = CatalogFake()
        wal = StubbornWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(20)
            found.append((await size(world) / before, dict(statistics(world))))

    run_seeded(seed, scenario)
    return found[0]


def test_a_damaged_segment_stays_and_the_others_are_rewritten() -> None:
    left, told = failing(Corrupt("c/1.log", 4096, "the checksum does not match"), 1, 6)
    assert 0.3 < left < 0.5
    assert told["pchannels_left"] == 0


def test_a_segment_that_a_full_disk_kept_is_tried_again() -> None:
    left, told = failing(WalError("cannot give back space: No space left on device"), 3, 7)
    assert left < 0.3
    assert told["failures"] == 3
