"""Changes whose answer the store loses: memory follows what is stored, without a restart."""

from collections.abc import Sequence

import anyio
import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.live_config.config_records import COMMIT_KEY, CONFIG_PREFIX, LOAD_PREFIX
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.master.live_config import ConfigChange
from broker.ports.meta import MetaEntry, MetaError
from tests.broker.coordinator.assignment.following import seeded
from tests.broker.coordinator.fakes import LosingStore
from tests.broker.coordinator.live_config.test_sys_config import SYS_CONFIG, Cluster


class UnreadableStore(LosingStore):
    """Lists no records of the prefix `unreadable`."""

    unreadable = "none"

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        if prefix == self.unreadable:
            raise MetaError("no answer")
        return await super().list(prefix, limit=limit, after=after)


LARGE = tuple(ConfigChange(f"app/{n}", "large") for n in range(200))


def terms(system: System) -> dict[str, int]:
    """The incarnation at each path."""
    return {row.path: row.term for row in system.statistics()}


@pytest.mark.parametrize("applies", [True, False])
def test_a_setting_whose_answer_was_lost_is_shown_and_in_force_as_it_is_stored(
    applies: bool,
) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore())
        cluster = Cluster(clock, store)
        async with await cluster.start() as system:
            await cluster.world.register(system, 1, settings_revision=0)
            before = terms(system)
            store.loses, store.applies = CONFIG_PREFIX, applies
            with pytest.raises(Refused, match="read the configuration") as caught:
                await cluster.set("retention_ms", "60000")
            assert caught.value.refusal.code is StreamingCode.UNKNOWN
            assert await cluster.all() == ({"retention_ms": "60000"} if applies else {})
            assert cluster.settings.now.retention_ms == (60_000 if applies else 0)
            await clock.sleep(1.0)
            refreshed = cluster.world.nodes[0].refreshed
            assert refreshed == ([cluster.settings.revision] if applies else [])
            assert terms(system) == before
            shown = await cluster.all()
        later = Cluster(clock, store)
        async with await later.start():
            assert await later.all() == shown

    seeded(1, scenario)


@pytest.mark.parametrize("lost", [LOAD_PREFIX, COMMIT_KEY])
@pytest.mark.parametrize("applies", [True, False])
def test_an_acknowledged_change_is_not_undone_by_a_large_one_whose_answer_was_lost(
    lost: str, applies: bool
) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore())
        cluster = Cluster(clock, store)
        async with await cluster.start():
            store.loses, store.applies, store.breaks = lost, applies, True
            assert await cluster.code(*LARGE) is StreamingCode.UNKNOWN
            assert await cluster.code(ConfigChange("app/7", "y")) is StreamingCode.INNER
            store.broken = False
            await cluster.set("app/7", "acknowledged")
            shown = await cluster.all()
            assert len(shown) == (200 if applies and lost == COMMIT_KEY else 1)
        later = Cluster(clock, store)
        async with await later.start():
            assert (await later.get("app/7"))[0] == "acknowledged"
            assert await later.all() == shown
        assert await store.list(LOAD_PREFIX, limit=10) == []

    seeded(2, scenario)


@pytest.mark.parametrize("partly", [True, False])
def test_what_the_store_does_not_tell_at_once_is_shown_when_it_answers_again(partly: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = UnreadableStore(MemoryMetaStore(), clock)
        cluster = Cluster(clock, store)
        async with await cluster.start() as system:
            before = terms(system)
            store.loses, store.breaks = CONFIG_PREFIX, not partly
            store.unreadable = CONFIG_PREFIX
            assert await cluster.code(ConfigChange("retention_ms", "7")) is StreamingCode.UNKNOWN
            await clock.sleep(60.0)
            assert await cluster.all() == {}
            assert cluster.settings.now.retention_ms == 0
            store.broken, store.unreadable = False, "none"
            await clock.sleep(5.0)
            assert await cluster.all() == {"retention_ms": "7"}
            assert cluster.settings.now.retention_ms == 7
            # A store that loses many answers must not cost the coordinator its restarts.
            assert terms(system)[SYS_CONFIG] == before[SYS_CONFIG]

    seeded(3, scenario)


def test_the_rest_of_a_large_change_is_written_when_the_store_answers_again() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore(), clock)
        cluster = Cluster(clock, store)
        async with await cluster.start():
            store.loses, store.breaks = "config_loaded/", True
            done = await cluster.change(*LARGE)
            assert (await cluster.get("app/7")) == ("large", done.revision)
            await clock.sleep(1.0)
            store.broken = False
            await clock.sleep(5.0)
            assert await store.list(LOAD_PREFIX, limit=10) == []
            assert (await cluster.get("app/7")) == ("large", done.revision)

    seeded(4, scenario)


def test_others_that_ask_meanwhile_are_all_answered() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore(), clock)
        store.delay_s = 0.1
        cluster = Cluster(clock, store)
        answers: dict[str, str] = {}

        async def change(key: str) -> None:
            try:
                await cluster.set(key, "1")
                answers[key] = "done"
            except Refused as error:
                answers[key] = error.refusal.code.name

        async with await cluster.start() as system:
            store.loses = f"{CONFIG_PREFIX}app/3"
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(change, f"app/{number}")
                # The Registrar stands behind this actor: a restart would refuse nodes.
                tasks.start_soon(cluster.world.register, system, 1)
            expected = {f"app/{n}": "done" for n in range(8)} | {"app/3": "UNKNOWN"}
            assert answers == expected
            assert (await cluster.all()).keys() == expected.keys()

    seeded(5, scenario)
