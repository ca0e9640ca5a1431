"""Programs that go on while the log is switched and its broker killed, and where a kill hit."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching import altering
from broker.client import Appended, Client, DeadlineExceeded, OutcomeUnknown, TidemarkError, connect
from broker.client.cluster import WalStatus
from broker.core.cluster.wal_alter import SEGMENTED
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.model.ids import NodeId

POLL_S = 0.02
THIRD = ("dropping", "done")
SECOND = ("switching", *THIRD)
FIRST = ("copying", *SECOND)
"""Stages: a kill comes in the first of them, or later if that one was over at once."""
END_S = 120.0


class Programs:
    """One that appends, one that reads, and a member of a group; they survive the broker."""

    def __init__(self, log: Client) -> None:
        self.log = log
        self.landed: dict[int, Appended] = {}
        self.sent: dict[int, bytes] = {}
        self.read: list[tuple[int, bytes]] = []
        self.acknowledged: set[bytes] = set()
        self.stopping = False

    async def append(self) -> None:
        number = 0
        while not self.stopping:
            sent = b"%d" % number
            number += 1
            # Its answer died with the broker, or that was away for longer than appends wait.
            with suppress(OutcomeUnknown, DeadlineExceeded):
                self.landed[number] = await self.log.append("trains", sent, key=sent)
                self.sent[number] = sent

    async def read_on(self) -> None:
        async for batch in self.log.read("trains", start="all"):
            self.read += [(it.id, it.payload) for it in batch.messages]

    async def work(self) -> None:
        async with self.log.group("workers").join("trains") as member:
            async for batch in member:
                self.acknowledged.update(it.payload for it in batch.messages)
                with suppress(TidemarkError):  # then they come again
                    await batch.ack()

    def through(self, wanted: set[tuple[int, bytes]]) -> bool:
        return wanted <= set(self.read) and set(self.sent.values()) <= self.acknowledged

    async def until_all_are_through(self) -> None:
        self.stopping = True
        wanted = {(int(it.id), self.sent[number]) for number, it in self.landed.items()}
        with anyio.fail_after(END_S):
            while not self.through(wanted):  # noqa: ASYNC110 - of a broker
                await anyio.sleep(POLL_S)
        payloads = [payload for _, payload in self.read]
        assert len(payloads) == len(set(payloads)), "each once"


@asynccontextmanager
async def programs(address: str) -> AsyncIterator[Programs]:
    async with connect(address) as log, anyio.create_task_group() as tasks:
        await log.collections.create("trains", shards=2)
        await log.group("workers").create("trains", start="all")
        those = Programs(log)
        for each in (those.append, those.read_on, those.work):
            tasks.start_soon(each)
        yield those
        tasks.cancel_scope.cancel()


async def until(log: Client, stages: tuple[str, ...]) -> WalStatus:
    with anyio.fail_after(END_S):
        while True:
            try:
                status = await log.admin.wal_status()
            except TidemarkError:
                continue  # of a broker that starts
            if status.stage in stages:
                return status
            await anyio.sleep(POLL_S)


async def check_all(those: Programs) -> None:
    """The log of now has what was acknowledged, once, with the ids that were told."""
    found: list[tuple[int, bytes]] = []
    async for batch in those.log.read("trains", start="all", until="now"):
        found += [(int(it.id), it.payload) for it in batch.messages]
    acknowledged = {(int(it.id), those.sent[number]) for number, it in those.landed.items()}
    lost = acknowledged - set(found)
    assert not lost
    payloads = Counter(payload for _, payload in found)
    assert not [it for it, times in payloads.items() if times > 1]
    # The reader read them from whichever log there was.
    assert sorted(those.read) == sorted(found)


@contextmanager
def copying_on() -> Iterator[None]:
    """No switch of a broker in this process gets beyond its copy; else it may win a race."""

    async def some(places: StoredPlaces) -> Sequence[NodeId]:
        return [NodeId(9)]

    with pytest.MonkeyPatch.context() as patch:
        # A node of an older release keeps a switch where it is; one that is there at the beginning
        # has it refused.
        patch.setattr(StoredPlaces, "older_nodes", some)
        patch.setattr(altering, "older_nodes", lambda nodes: None)
        yield


async def stage_on_disk(data: Path) -> str:
    """The stage of the newest switch of a broker that was killed."""
    async with await SqliteMetaStore.open(DataFolder(data).metadata) as store:
        alter = await StoredPlaces(store, SEGMENTED).alter()
    return alter.stage.name.lower() if alter else ""
