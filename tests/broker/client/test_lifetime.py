"""A client that may not be used any more: every call says so, at once or at its first step."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from broker.client import Client, ClosedClient, Deadlines, Message, OutcomeUnknown, connect
from broker.client.cluster import cuts
from broker.client.errors import ForkedClient
from broker.client.lifetime import ClientLifetime
from broker.coordinator.cuts import cut_lock
from tests.broker.client.scripted import VCHANNEL, ScriptedBroker, scripted_broker
from tests.local_broker import local_broker

GUARD_S = 30.0


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as scripted:
        yield scripted


CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "append": lambda log: log.append(VCHANNEL, b"a"),
    "append_soon": lambda log: log.append_soon(VCHANNEL, Message(b"a")),
    "append_batch": lambda log: log.append_batch(VCHANNEL, [b"a"]),
    "append_messages": lambda log: log.append_messages(VCHANNEL, [Message(b"a")]),
    "raw_append": lambda log: log.raw_append(VCHANNEL, Message(b"a")),
    "txn": lambda log: log.txn(VCHANNEL).begin(),
    "stage": lambda log: log.stage("app", 1, 0).append(VCHANNEL, b"a"),
    "commit_batch": lambda log: log.commit_batch("app", 1, []),
    "cut": lambda log: log.cut(VCHANNEL),
    "measure": lambda log: log.measure(VCHANNEL, after=1, until=2),
    "barrier": lambda log: log.barrier("q").join("me").__aenter__(),
    "barriers": lambda log: log.barriers.list(),
    "cursor": lambda log: log.cursor("q").move(1, VCHANNEL),
    "cursors": lambda log: log.cursors.list(),
    "broadcast": lambda log: log.broadcast.append(VCHANNEL, b"a"),
    "collections": lambda log: log.collections.list(),
    "commits": lambda log: log.commits.list(),
    "offsets": lambda log: log.offsets.describe([VCHANNEL]),
    "admin": lambda log: log.admin.health(),
}


async def test_every_call_on_a_closed_client_is_refused(broker: ScriptedBroker) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"a")  # so that the vchannel is known without a request
        waiting = log.read(VCHANNEL)
        await log.aclose()
        for call in CALLS.values():
            with anyio.fail_after(GUARD_S), pytest.raises(ClosedClient):
                await call(log)
        with pytest.raises(ClosedClient):
            log.read(VCHANNEL)
        with pytest.raises(ClosedClient):
            log.read_batches(VCHANNEL)
        with pytest.raises(ClosedClient):
            log.barrier("q").watch()
        with pytest.raises(ClosedClient):
            await anext(waiting)


UNANSWERED: dict[str, Callable[[Client], Awaitable[object]]] = {
    "commit": lambda log: log.commit_batch("app", 1, []),
    "broadcast": lambda log: log.broadcast.append(VCHANNEL, b"a"),
}


@pytest.mark.parametrize("name", UNANSWERED)
async def test_closing_the_client_leaves_the_outcome_of_an_unanswered_call_open(
    name: str, broker: ScriptedBroker
) -> None:
    async def unanswered(log: Client) -> None:
        with pytest.raises(OutcomeUnknown, match="may still take effect"):
            await UNANSWERED[name](log)

    async with connect(broker.address) as log, anyio.create_task_group() as tasks:
        tasks.start_soon(unanswered, log)
        await broker.until(lambda: broker.hanging == 1)
        await log.aclose()


async def test_a_cut_that_has_begun_releases_its_hold_while_the_client_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise broadcasts would wait until the lease of the hold has ended."""
    # Longer than this may take on a slow machine, and than the broadcast below waits.
    monkeypatch.setattr(cut_lock, "LEASE_S", 2 * GUARD_S)
    monkeypatch.setattr(cuts, "RELEASE_S", GUARD_S)
    patient = Deadlines(call_s=GUARD_S, close_s=GUARD_S)
    outcomes: list[object] = []
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as other:
        await other.collections.create("trains")
        async with connect(broker.address, deadlines=patient) as log:
            cut = log._network.coordinator.call
            asked = anyio.Event()

            async def slow(path: str, *arguments: Any, **options: Any) -> Any:
                answer = await cut(path, *arguments, **options)
                if path.endswith("HoldBroadcasts"):
                    asked.set()
                    # The client is being closed by the time the next call of this cut is made.
                    while not log._network.lifetime.closing:
                        await anyio.lowlevel.checkpoint()
                return answer

            log._network.coordinator.call = slow  # type: ignore[method-assign]

            async def take() -> None:
                outcomes.append(await log.cut("trains", whole_broadcasts=True))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take)
                await asked.wait()
                await log.aclose()
        assert len(outcomes) == 1
        assert await other.broadcast.locks() == []
        with anyio.fail_after(GUARD_S):
            await other.broadcast.append("trains", b"at once")


def test_a_forked_process_is_told_which_process_connected() -> None:
    lifetime = ClientLifetime()
    lifetime.check()
    child = os.fork()
    if child == 0:
        try:
            lifetime.check()
        except ForkedClient as error:
            os._exit(7 if str(os.getppid()) in str(error) else 8)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
