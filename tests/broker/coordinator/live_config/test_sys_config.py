"""The actor of the configuration: durable first, all or nothing, and settings in every process."""

from collections.abc import Sequence
from typing import Any

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.app.settings_in_force import SettingsInForce
from broker.coordinator.leases.leadership import lead
from broker.coordinator.live_config.config_records import (
    COMMIT_KEY,
    CONFIG_PREFIX,
    LOAD_PREFIX,
    LOADED_PREFIX,
)
from broker.coordinator.live_config.messages import (
    ChangeConfig,
    Changed,
    Found,
    GetConfig,
    GetConfigByPrefix,
    ListSettings,
    RequestConfig,
)
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.master.live_config import ConfigChange
from broker.ports.meta import MetaEntry, MetaError, MetaStore
from broker.process_settings import Settings
from tests.broker.coordinator.assignment.following import seeded
from tests.broker.coordinator.leases.registered import World

SYS_CONFIG = "/coordinator/sys_config"


class Cluster:
    """A coordinator over a store, whose own settings are `settings`."""

    def __init__(self, clock: VirtualClock, store: MetaStore | None = None, count: int = 2) -> None:
        self.world = World(clock, store or MemoryMetaStore(), count=count)
        self.settings = SettingsInForce(Settings())
        self.system: System

    async def start(self, **more: Any) -> System:
        self.system = await self.world.start(settings=self.settings, lease_s=60.0, **more)
        return self.system

    async def change(self, *changes: ConfigChange) -> Changed:
        found = await self.system.find(SYS_CONFIG).ask(ChangeConfig(changes), deadline_s=9.0)
        assert isinstance(found, Changed)
        return found

    async def set(self, key: str, value: str | None, expected: int | None = None) -> Changed:
        return await self.change(ConfigChange(key, value, expected))

    async def all(self) -> dict[str, str]:
        found = await self.system.find(SYS_CONFIG).ask(GetConfigByPrefix("/"), deadline_s=9.0)
        assert isinstance(found, Found)
        return {it.key: it.value for it in found.entries}

    async def get(self, key: str) -> tuple[str, int]:
        found = await self.system.find(SYS_CONFIG).ask(GetConfig((key,)), deadline_s=9.0)
        return found.entries[0].value, found.entries[0].revision

    async def code(self, *changes: ConfigChange) -> StreamingCode:
        with pytest.raises(Refused) as caught:
            await self.change(*changes)
        return caught.value.refusal.code


class FailingStore:
    """Fails the write of this number, and all later ones until it is mended."""

    def __init__(self, inner: MetaStore) -> None:
        self._inner = inner
        self.fails_at = -1
        self.writes = 0
        self.keys: list[set[str]] = []

    async def get(self, key: str) -> MetaEntry | None:
        return await self._inner.get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        return await self._inner.list(prefix, limit=limit, after=after)

    async def write(self, puts: Any, *, deletes: Any = (), expect: Any = None) -> int:
        self.writes += 1
        if 0 <= self.fails_at < self.writes:
            raise MetaError("disk full")
        self.keys.append({*puts, *deletes})
        return await self._inner.write(puts, deletes=deletes, expect=expect)

    async def close(self) -> None:
        await self._inner.close()


def test_a_change_is_durable_and_in_force_when_it_is_answered_and_after_a_restart() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        async with await cluster.start():
            done = await cluster.change(
                ConfigChange("retention_ms", "86400000"), ConfigChange("app/colour", "blue")
            )
            assert cluster.settings.now.retention_ms == 86_400_000
            assert await cluster.get("/App/Colour") == ("blue", done.revision)
        later = Cluster(clock, cluster.world.store)
        async with await later.start() as system:
            assert later.settings.now.retention_ms == 86_400_000
            assert later.settings.revision == done.revision
            assert await later.get("retention_ms") == ("86400000", done.revision)
            system.kill(SYS_CONFIG)
            await clock.sleep(1.0)
            await later.set("retention_ms", None)
            assert later.settings.now.retention_ms == 0
            assert await later.all() == {"app/colour": "blue"}

    seeded(1, scenario)


def test_a_refused_request_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        async with await cluster.start():
            good = ConfigChange("app/x", "1")
            for bad, code in (
                (ConfigChange("retention_ms", "-1"), StreamingCode.INVALID_ARGUMENT),
                (ConfigChange("pchannels", "3"), StreamingCode.UNRECOVERABLE),
                (ConfigChange("app/none", None), StreamingCode.CHANNEL_NOT_EXIST),
                (ConfigChange("app/none", "1", 5), StreamingCode.INVALID_REQUEST_SEQ),
            ):
                assert await cluster.code(good, bad) is code
            assert await cluster.all() == {}
            assert cluster.settings.revision == 0

    seeded(2, scenario)


def test_of_two_changes_that_expect_the_same_revision_one_wins() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        async with await cluster.start():
            first = await cluster.set("app/colour", "blue", 0)
            assert (await cluster.set("app/colour", "red", first.revision)).revision > 0
            again = ConfigChange("app/colour", "green", first.revision)
            assert await cluster.code(again) is StreamingCode.INVALID_REQUEST_SEQ
            assert (await cluster.get("app/colour"))[0] == "red"

    seeded(3, scenario)


def test_nodes_are_asked_to_renew_and_their_leases_carry_what_they_lack() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        world = cluster.world
        async with await cluster.start() as system:
            await world.register(system, 1, settings_revision=0)
            old = await world.register(system, 2)
            world.nodes[1].down = True
            done = await cluster.set("retention_ms", "5")
            assert (done.nodes.reached, done.nodes.behind) == ((1,), (2,))
            lease = await world.register(system, 1, settings_revision=0)
            assert lease.settings is not None
            assert (lease.settings.revision, lease.settings.values) == (
                done.revision,
                {"retention_ms": "5"},
            )
            lease = await world.register(system, 1, settings_revision=done.revision)
            assert lease.settings is None
            # One of an earlier release, which sends no revision, gets none.
            assert (await world.renew(system, 2, old)).settings is None
            # A free key is nothing to nodes.
            asked = list(world.nodes[0].refreshed)
            assert (await cluster.set("app/x", "1")).nodes.reached == ()
            assert world.nodes[0].refreshed == asked

    seeded(4, scenario)


def test_a_node_that_hangs_delays_a_change_by_a_second_and_is_asked_again() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        world = cluster.world
        async with await cluster.start() as system:
            for node in (1, 2):
                await world.register(system, node, settings_revision=0)
            world.nodes[0].silent = True
            began_s = clock.monotonic_s()
            done = await cluster.set("retention_ms", "5")
            assert (done.nodes.reached, done.nodes.behind) == ((2,), (1,))
            assert clock.monotonic_s() - began_s <= 1.1
            world.nodes[0].silent = False
            await clock.sleep(2.0)
            assert world.nodes[0].refreshed == [done.revision]
            found = await system.find(SYS_CONFIG).ask(ListSettings(), deadline_s=5.0)
            assert found.nodes == [(1, done.revision), (2, done.revision)]

    seeded(5, scenario)


def test_a_node_that_hangs_delays_neither_later_changes_nor_questions_by_a_second() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        world = cluster.world
        async with await cluster.start() as system:
            for node in (1, 2):
                await world.register(system, node, settings_revision=0)
            world.nodes[0].silent = True
            await cluster.set("retention_ms", "5")
            for value in range(20):
                began_s = clock.monotonic_s()
                done = await cluster.set("retention_ms", str(value))
                assert (done.nodes.reached, done.nodes.behind) == ((2,), (1,))
                # At most one question to the hanging node is under way before.
                assert clock.monotonic_s() - began_s <= 0.41
                await clock.sleep(value / 20)
                asked_s = clock.monotonic_s()
                await cluster.all()
                assert clock.monotonic_s() - asked_s <= 0.21
            world.nodes[0].silent = False
            await clock.sleep(1.0)
            assert (await cluster.set("retention_ms", "50")).nodes.reached == (1, 2)

    seeded(10, scenario)


def test_entries_of_a_large_change_have_its_revision_also_after_restarts() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        cluster = Cluster(clock, store)
        async with await cluster.start():
            await cluster.set("app/0", "first")
            large = [ConfigChange(f"app/{n}", "x") for n in range(300)]
            done = await cluster.change(*large, ConfigChange("retention_ms", "7"))
            for key in ("app/0", "app/299", "retention_ms"):
                assert (await cluster.get(key))[1] == done.revision
            # So the returned revision is the one to expect.
            later = await cluster.set("app/7", "y", done.revision)
            assert (await cluster.get("app/7"))[1] == later.revision > done.revision
            again = await cluster.change(*[ConfigChange(f"app/{n}", "z") for n in range(8, 300)])
        restarted = Cluster(clock, store)
        async with await restarted.start():
            assert (await restarted.get("app/7"))[1] == later.revision
            assert (await restarted.get("app/6"))[1] == done.revision
            assert (await restarted.get("app/8"))[1] == again.revision
            assert restarted.settings.revision == done.revision
            gone = [ConfigChange(f"app/{n}", None) for n in range(300)]
            await restarted.change(*gone, ConfigChange("retention_ms", None))
        last = Cluster(clock, store)
        async with await last.start():
            assert await last.all() == {}
        assert await store.list(LOADED_PREFIX, limit=10) == []

    seeded(11, scenario)


def test_a_failing_store_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = FailingStore(MemoryMetaStore())
        cluster = Cluster(clock, store)
        async with await cluster.start():
            store.fails_at = store.writes
            assert await cluster.code(ConfigChange("retention_ms", "5")) is StreamingCode.INNER
            assert cluster.settings.now.retention_ms == 0
            assert await cluster.all() == {}
            store.fails_at = -1
            await cluster.set("retention_ms", "5")
            assert cluster.settings.now.retention_ms == 5

    seeded(6, scenario)


def test_a_large_change_is_whole_or_absent_whichever_write_fails() -> None:
    """300 keys and more than a MiB need many writes; at each of them the store fails for good."""
    before = {f"app/{n}": "old" for n in range(0, 300, 2)}
    large = [ConfigChange(f"app/{n}", "x" * 8000) for n in range(1, 300)] + [
        ConfigChange("app/0", None),
        ConfigChange("retention_ms", "7"),
    ]
    after = {f"app/{n}": "x" * 8000 for n in range(1, 300)} | {"retention_ms": "7"}

    async def fails_at(clock: VirtualClock, number: int) -> bool:
        """Whether the change was answered, with the write of this number failing."""
        store = FailingStore(MemoryMetaStore())
        cluster = Cluster(clock, store)
        async with await cluster.start():
            await cluster.change(*[ConfigChange(key, it) for key, it in before.items()])
            store.fails_at = store.writes + number
            try:
                await cluster.change(*large)
            except Refused:
                answered = False
            else:
                answered = True
            assert await cluster.all() == (after if answered else before)
            finished = store.writes <= store.fails_at
        store.fails_at = -1
        later = Cluster(clock, store)
        async with await later.start():
            assert await later.all() == (after if answered else before)
            assert later.settings.now.retention_ms == (7 if answered else 0)
            await later.set("app/next", "1")
        left = await store.list(LOAD_PREFIX, limit=1000)
        assert (left, await store.get(COMMIT_KEY)) == ([], None)
        assert all(len(keys) <= 100 for keys in store.keys)
        return finished

    async def scenario(clock: VirtualClock) -> None:
        outcomes = []
        for number in range(40):
            outcomes.append(await fails_at(clock, number))
            if outcomes[-1]:
                break
        assert outcomes[-1]
        assert len(outcomes) > 8

    seeded(7, scenario)


def test_a_change_after_an_unfinished_large_one_finishes_it_first() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = FailingStore(MemoryMetaStore())
        cluster = Cluster(clock, store)
        async with await cluster.start():
            large = [ConfigChange(f"app/{n}", "x") for n in range(200)]
            parts = 1
            store.fails_at = store.writes + parts + 1  # behind the commit
            await cluster.change(*large)
            assert await store.get(COMMIT_KEY) is not None
            assert await cluster.code(ConfigChange("app/5", "y")) is StreamingCode.INNER
            assert (await cluster.get("app/5"))[0] == "x"
            store.fails_at = -1
            await cluster.set("app/5", "y")
            assert await store.get(COMMIT_KEY) is None
            assert len(await cluster.all()) == 200
            entry = await store.get(f"{CONFIG_PREFIX}app/5")
            assert entry is not None
            assert entry.value == b"y"

    seeded(8, scenario)


def test_a_deposed_coordinator_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        cluster = Cluster(clock, await lead(store))
        async with await cluster.start():
            await cluster.set("app/colour", "blue")
            newer = await lead(store)
            for change in (
                [ConfigChange("retention_ms", "5")],
                [ConfigChange(f"app/{n}", "x") for n in range(200)],
            ):
                assert await cluster.code(*change) is StreamingCode.INNER
            assert cluster.settings.now.retention_ms == 0
            kept = await newer.list(CONFIG_PREFIX, limit=10)
            assert [key for key, _ in kept] == ["config/app/colour"]
            assert await newer.list(LOAD_PREFIX, limit=10) == []

    seeded(9, scenario)


def test_a_question_that_is_too_large_is_refused() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster(clock)
        async with await cluster.start() as system:
            await cluster.set("app/colour", "red")
            for question in (GetConfig(("app/colour",) * 10_001), RequestConfig((), ("/",) * 101)):
                with pytest.raises(Refused, match="send at most") as caught:
                    await system.find(SYS_CONFIG).ask(question, deadline_s=9.0)
                assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(1, scenario)
