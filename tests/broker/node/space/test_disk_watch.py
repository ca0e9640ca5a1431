"""While the disk is full a node refuses what takes space, and does what frees it."""

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TxnId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.append.appender import REFUSING
from broker.ports.space.disk_room import DiskSpace
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, land, purge, read
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, fill, size
from tests.broker.node.world import World, message, running_node

FULL = Refusal(StreamingCode.ON_SHUTDOWN, "storage refused: No space left")


class RoomFake:
    """A disk that is `full` or not; what is so is seen at the next look."""

    def __init__(self) -> None:
        self.full: Refusal | None = None
        self.refusal: Refusal | None = None
        self.space: DiskSpace | None = None
        self.looks = 0

    async def look(self) -> None:
        self.looks += 1
        self.refusal = self.full


def state(world: World) -> object:
    (found,) = [it.extra for it in world.system.statistics() if it.path == world.path("appender")]
    return found["state"]


def test_rows_are_refused_and_purges_and_ends_of_transactions_are_taken() -> None:
    async def scenario() -> None:
        room = RoomFake()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, room=room) as world:
            await world.assign()
            await fill(world)
            (landed,) = await land(world, "last")
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 600_000))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            before = await size(world)
            room.full = FULL
            await world.clock.sleep(1.5)
            assert await world.append(message("one"), begin) == (FULL, FULL)
            assert await world.append(message("two", txn=begun.txn)) == (FULL,)
            assert state(world) == REFUSING
            assert len(await read(world, MINE)) == 81, "reads go on"
            (ended,) = await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            assert not isinstance(ended, Refusal)
            done = await purge(world, landed.tick)
            assert isinstance(done, Purge), done
            await world.clock.sleep(10)
            assert await size(world) < 0.4 * before
            room.full = None
            await world.clock.sleep(1.5)
            (taken,) = await world.append(message("one"))
            assert isinstance(taken, Appended)
            assert state(world) == "serving"
            assert room.looks >= 10

    run_seeded(1, scenario)
