"""A process whose metadata store answers nothing more ends, and says why."""

from typing import Any, cast

import anyio
import pytest

from actors import SupervisorSpec, System
from broker.app import Broker, CannotGoOn
from broker.coordinator.leases.leadership import lead
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import UnusableStore
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
