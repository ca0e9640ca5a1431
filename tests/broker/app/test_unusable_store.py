"""A process whose metadata store answers nothing more ends, and says why."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import pytest

from actors import SupervisorSpec, System
from broker.app import Broker, CannotGoOn
from broker.app.stores import store_watch
from broker.app.stores.store_watch import until_unusable
from broker.coordinator.leases.leadership import lead
from broker.etcd.etcd_store import EtcdMetaStore
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import MetaError, MetaStore, UnusableStore
from tests.broker.coordinator.fakes import ShakyStore


async def test_a_coordinator_ends_with_the_sentence_of_a_store_that_answers_nothing_more() -> None:
    store = ShakyStore(MemoryMetaStore())
    led = await lead(store)
    store.broken, store.failure = True, UnusableStore("etcd was restored from a backup")
    nothing = cast("Any", None)
    async with System(SupervisorSpec("root", children=())) as system:
        broker = Broker("", system, nothing, nothing, led=led)
        with anyio.fail_after(30), pytest.raises(CannotGoOn, match="restored from a backup"):
            await broker.until_ended()


class ShakyEtcd(EtcdMetaStore):
    """Each look at it fails with the next of `failures`; after the last it is well."""

    def __init__(self, *failures: MetaError) -> None:
        self.failures = list(failures)
        self.looks = 0
        self.well = anyio.Event()

    async def beat(self) -> None:
        self.looks += 1
        if self.failures:
            raise self.failures.pop(0)
        self.well.set()


async def test_a_node_ends_with_the_sentence_of_a_store_that_answers_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_watch, "NOTE_S", 0.01)
    store = ShakyEtcd(MetaError("etcd is away"), UnusableStore("etcd was restored from a backup"))
    async with node_on(store) as broker:
        with anyio.fail_after(30), pytest.raises(CannotGoOn, match="restored from a backup"):
            await broker.until_ended()
    assert store.looks == 2


async def test_a_node_goes_on_while_its_store_is_well_or_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_watch, "NOTE_S", 0.001)
    store = ShakyEtcd(*[MetaError("etcd is away")] * 3)
    async with node_on(store) as broker, anyio.create_task_group() as tasks:
        tasks.start_soon(broker.until_ended)
        with anyio.fail_after(30):
            await store.well.wait()
        tasks.cancel_scope.cancel()
    assert store.looks > 3


async def test_a_node_without_etcd_watches_nothing() -> None:
    async with node_on(MemoryMetaStore()) as broker:
        with anyio.move_on_after(0.05) as waited:
            await broker.until_ended()
    assert waited.cancelled_caught


@asynccontextmanager
async def node_on(store: MetaStore) -> AsyncIterator[Broker]:
    nothing = cast("Any", None)
    async with System(SupervisorSpec("root", children=())) as system:
        yield Broker("", system, nothing, nothing, watch=partial(until_unusable, store))
