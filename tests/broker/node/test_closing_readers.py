"""Readers of a channel that closes while its log answers nothing."""

import asyncio

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId
from broker.model.position import ReadPosition
from broker.node.scanner_messages import Pull
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.test_scanner import opened
from tests.broker.node.world import message, running_node


class GoneAway(MemoryWal):
    """A log that answers no read any more, once it is `away`."""

    away = False

    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        log = await super().open(channel, term)

        async def read(from_id: MessageId, bytes_max: int):  # type: ignore[no-untyped-def]
            if self.away:
                await asyncio.sleep(3600)
            return await MemoryLog.read(log, from_id, bytes_max)

        log.read = read  # type: ignore[method-assign]
        return log


def test_readers_that_wait_for_the_log_do_not_keep_the_channel_from_closing() -> None:
    async def scenario() -> None:
        wal = GoneAway()
        async with running_node(wal, NodeLimits(tail_age_s=0.1)) as world:
            await world.assign()
            for _ in range(10):
                await world.append(message("x"))
                await world.clock.sleep(0.3)
            await world.clock.sleep(10)  # the snapshot follows the log, too
            wal.away = True
            answers: list[object] = []

            async def pull() -> None:
                scanner = await opened(world)
                pull = Pull(ReadPosition(MessageId(2)), 100)
                answers.append(await scanner.scanner.ask(pull, deadline_s=99))

            async with asyncio.TaskGroup() as tasks:
                for _ in range(20):
                    tasks.create_task(pull())
                await world.clock.sleep(1)
                since_s = world.clock.monotonic_s()
                assert await world.remove() is None
                assert world.clock.monotonic_s() - since_s < 1
            codes = [it.code for it in answers if isinstance(it, Refusal)]
            assert codes == [StreamingCode.ON_SHUTDOWN] * 20

    run_seeded(9, scenario)
