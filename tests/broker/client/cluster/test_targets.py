"""Names that are resolved while collections are dropped and created."""

import anyio
import pytest

from broker.client.cluster.targets import NewVChannel, Shards, Targets
from broker.client.errors import BadTarget, ConnectionLost, SchemaVersionMismatch
from broker.client.lifetime import ClientLifetime
from broker.client.message import Message
from broker.model.ids import VChannelName
from broker.model.message import MessageType

pytestmark = pytest.mark.asyncio
OLD, NEW = (Shards("trains", (VChannelName(f"p-0_{it}v0"),)) for it in (100, 101))


class Server:
    """Answers look-ups when it is let; `now` is what the name stands for."""

    def __init__(self) -> None:
        self.now = OLD
        self.asked = 0
        self.may_answer = anyio.Event()
        self.error: Exception | None = None

    async def look_up(self, _: str) -> Shards:
        found = self.now
        self.asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return found


async def test_a_drop_during_a_look_up_leaves_no_outdated_answer_behind() -> None:
    server = Server()
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=5)
    found: list[Shards] = []

    async def resolve() -> None:
        found.append(await targets.resolve("trains"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resolve)
        while not server.asked:
            await anyio.lowlevel.checkpoint()
        server.now = NEW  # dropped and created anew, while the answer is on its way
        targets.forget("trains")
        server.may_answer.set()
    assert found == [NEW]
    assert await targets.resolve("trains") is NEW
    assert server.asked == 2, "one of them again, none for the cached one"


async def test_a_reader_looks_a_collection_up_anew_and_an_append_does_not() -> None:
    server = Server()
    server.may_answer.set()
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=5)
    assert await targets.resolve("trains") is OLD
    server.now = NEW
    assert await targets.resolve("trains") is OLD
    assert await targets.current("trains") is NEW
    server.error = ConnectionLost("the coordinator is away")
    assert await targets.current("trains") is NEW, "what is known counts while nobody answers"


async def test_data_is_refused_where_nobody_would_read_it() -> None:
    rows = Shards("typed", (VChannelName("p-0_1v0"),), rows_of="typed")
    with pytest.raises(SchemaVersionMismatch, match=r"'typed' .* use append_arrow"):
        rows.choose_for(Message(b"x"))
    assert rows.choose_for(Message(b"", type=MessageType.MANUAL_FLUSH)) == "p-0_1v0"
    pchannel = Shards(None, (VChannelName("p-0"),), broad="a pchannel")
    with pytest.raises(BadTarget, match=r"'p-0' is a pchannel, which takes no data: name"):
        pchannel.choose_for_batch("p-0", keyed=False)


async def test_a_new_vchannel_needs_no_look_up() -> None:
    server = Server()
    found = await Targets(server.look_up, ClientLifetime(), deadline_s=5).resolve(
        NewVChannel("p-0_7v0")
    )
    assert (found.vchannels, found.raw, server.asked) == (("p-0_7v0",), True, 0)


async def test_a_look_up_is_repeated_while_the_server_is_away() -> None:
    server = Server()
    server.may_answer.set()
    server.error = ConnectionLost("killed")
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=60)

    async with anyio.create_task_group() as tasks:

        async def come_back() -> None:
            while server.asked < 2:
                await anyio.lowlevel.checkpoint()
            server.error = None

        tasks.start_soon(come_back)
        assert await targets.resolve("trains") is OLD
    assert server.asked >= 2


async def test_a_look_up_fails_at_its_deadline_with_the_error_of_the_server() -> None:
    server = Server()
    server.may_answer.set()
    server.error = ConnectionLost("killed")
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=60)
    with pytest.raises(ConnectionLost, match="killed"):
        await targets.resolve("trains", 0.01)


async def test_tasks_that_need_a_name_together_share_one_look_up() -> None:
    server = Server()
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=60)
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(targets.resolve, "trains")
        await anyio.wait_all_tasks_blocked()
        server.may_answer.set()
    assert server.asked == 1


async def test_a_task_asks_when_the_one_that_asked_for_it_was_cancelled() -> None:
    server = Server()
    targets = Targets(server.look_up, ClientLifetime(), deadline_s=60)
    found: list[Shards] = []
    first = anyio.CancelScope()

    async def cancelled() -> None:
        with first:
            await targets.resolve("trains")

    async def resolve() -> None:
        found.append(await targets.resolve("trains"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(resolve)
        tasks.start_soon(resolve)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        assert server.asked == 2
        server.may_answer.set()
    assert found == [OLD, OLD]
