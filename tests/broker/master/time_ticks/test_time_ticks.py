"""The time tick producer over channels and a store that fail, and actors that die at any step."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random

import anyio
import pytest

from actors import ONE_FOR_ONE, ActorError, SupervisorSpec, System
from actors.testing import EPOCH_MS, VirtualClock, run_seeded
from broker.core.time import tso
from broker.master.time_ticks.messages import CloseTicks, DescribeTicks, ReportPeerTick, SetTicks
from broker.master.time_ticks.tick_records import decode_settings, settings_key
from broker.master.time_ticks.tree import RESTARTS_MAX
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickSettings, TimeTicksView
from broker.ports.meta import MetaStore
from tests.broker.coordinator.fakes import LosingStore, ShakyStore

PCHANNEL = PChannelName("by-dev-rootcoord-dml_0")
CHANNELS = tuple(f"{PCHANNEL}_{number}v0" for number in range(3))
WRITE_NODES = TickOrigin.WRITE_NODES
COLLECTOR = "/root/master/time_ticks/write_nodes"
SENDER = COLLECTOR + "_sender"
T0 = tso.compose(EPOCH_MS, 0)


class Channels:
    """Channels that get ticks, except those that are `away`; `logs` has what each of them got."""

    def __init__(self) -> None:
        self.logs: dict[str, list[int]] = {channel: [] for channel in CHANNELS}
        self.away: set[str] = set()
        self.calls = 0
        self.before_append: Callable[[], None] = lambda: None

    async def append(self, tick: TimeTick, channels: Sequence[str]) -> Sequence[Refusal | None]:
        self.calls += 1
        self.before_append()
        outcomes: list[Refusal | None] = []
        for channel in channels:
            await anyio.lowlevel.checkpoint()
            if channel in self.away:
                outcomes.append(Refusal(StreamingCode.CHANNEL_NOT_EXIST, "no node serves it"))
            else:
                self.logs[channel].append(tick)
                outcomes.append(None)
        return outcomes


def run_master(store: MetaStore, channels: Channels, clock: VirtualClock) -> System:
    parts = MasterParts(store, [PCHANNEL], channels)
    return System(SupervisorSpec("root", ONE_FOR_ONE, (master_tree(parts, "/root"),)), clock=clock)


async def set_ticks(
    system: System,
    peers: Sequence[int] = (1, 2),
    policy: TickPolicy = TickPolicy.MINIMUM,
    channels: Sequence[str] = CHANNELS,
) -> TimeTicksView:
    settings = TickSettings(tuple(peers), tuple(channels), policy)
    return await system.find(COLLECTOR).ask(SetTicks(settings), deadline_s=60.0)


async def report(system: System, tick: int, *peers: int) -> None:
    for peer in peers:
        message = ReportPeerTick(peer, TimeTick(T0 + tick))
        await system.find(COLLECTOR).ask(message, deadline_s=60.0)


async def view_of(system: System) -> TimeTicksView:
    return await system.find(COLLECTOR).ask(DescribeTicks(), deadline_s=60.0)


def seeded(test: Callable[[VirtualClock], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        await test(VirtualClock())

    run_seeded(seed, main)


def test_a_tick_is_sent_once_to_each_channel_and_an_idle_producer_sends_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(60.0)
            assert channels.logs == {channel: [T0 + 10] for channel in CHANNELS}
            assert channels.calls == 1
            view = await view_of(system)
            assert (view.passed, view.sent, view.waiting) == (T0 + 10, T0 + 10, 0)

    seeded(scenario)


def test_a_partial_broadcast_is_finished_with_pauses_and_not_reported_before() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        channels.away = {CHANNELS[1]}
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(30.0)
            view = await view_of(system)
            assert (view.passed, view.sent, view.waiting) == (T0 + 10, 0, 1)
            assert "no node serves it" in view.error
            assert f"tick {T0 + 10}: {CHANNELS[1]}" in view.error
            assert 5 <= channels.calls <= 20  # the pauses double up to 10 s
            await report(system, 20, 1, 2)
            channels.away = set()
            await clock.sleep(15.0)
            # The others got each tick once.
            assert channels.logs == {channel: [T0 + 10, T0 + 20] for channel in CHANNELS}
            view = await view_of(system)
            assert (view.sent, view.error) == (T0 + 20, "")

    seeded(scenario)


def test_a_channel_that_is_taken_away_is_not_waited_for() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        channels.away = {CHANNELS[2]}
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(1.0)
            await set_ticks(system, channels=CHANNELS[:2])
            await clock.sleep(15.0)
            assert (await view_of(system)).sent == T0 + 10

    seeded(scenario)


def test_a_tick_is_recorded_before_any_channel_has_it() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store, channels = ShakyStore(MemoryMetaStore(), clock), Channels()
        async with run_master(store, channels, clock) as system:
            await set_ticks(system)
            store.broken = True
            await report(system, 10, 1, 2)
            await clock.sleep(20.0)
            assert channels.logs == {channel: [] for channel in CHANNELS}
            assert "disk full" in (await view_of(system)).error
            store.broken = False
            await clock.sleep(15.0)
            assert channels.logs == {channel: [T0 + 10] for channel in CHANNELS}

    seeded(scenario)


def test_settings_that_cannot_be_stored_do_not_count() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_master(store, Channels(), clock) as system:
            store.broken = True
            with pytest.raises(Refused, match="could not be stored: disk full; try again"):
                await set_ticks(system)
            assert (await view_of(system)).settings is None
            store.broken = False
            await set_ticks(system)
            store.broken = True
            with pytest.raises(Refused, match="disk full"):
                await system.find(COLLECTOR).ask(CloseTicks(), deadline_s=60.0)
            assert (await view_of(system)).settings is not None

    seeded(scenario)


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("applies", [True, False])
def test_after_a_lost_answer_the_ticks_are_those_in_the_store(applies: bool, breaks: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store, channels = LosingStore(MemoryMetaStore(), clock), Channels()
        store.applies, store.breaks = applies, breaks
        async with run_master(store, channels, clock) as system:
            settled: TickSettings | None = None
            for peers in ((1, 2), (1, 2, 3), (3,), ()):
                await lose_an_answer(system, store, peers)
                if breaks:
                    with pytest.raises(Refused, match="not known yet which time ticks") as caught:
                        await view_of(system)
                    assert caught.value.refusal.code is StreamingCode.INNER
                    store.broken = False
                    await clock.sleep(10.0)
                before, settled = settled, (await view_of(system)).settings
                assert settled == await stored_settings(store)
                if not applies:
                    assert settled == before
                settled = (await change(system, peers)).settings
                assert settled == await stored_settings(store)

    seeded(scenario)


def test_after_a_lost_answer_reports_count_on_and_a_new_peer_is_waited_for() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store, channels = LosingStore(MemoryMetaStore(), clock), Channels()
        store.breaks = True
        async with run_master(store, channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1)
            await lose_an_answer(system, store, (1, 2, 3))
            await report(system, 10, 2)
            store.broken = False
            await clock.sleep(20.0)
            await report(system, 20, 1, 2)
            await clock.sleep(1.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10]
            await report(system, 15, 3)
            await clock.sleep(1.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10, T0 + 15]
            await lose_an_answer(system, store, ())
            store.broken = False
            await clock.sleep(10.0)
            view = await view_of(system)
            assert (view.settings, view.passed) == (None, T0 + 15)

    seeded(scenario)


async def change(system: System, peers: Sequence[int]) -> TimeTicksView:
    """Set the ticks of these peers; close them without any."""
    if peers:
        return await set_ticks(system, peers)
    return await system.find(COLLECTOR).ask(CloseTicks(), deadline_s=60.0)


async def lose_an_answer(system: System, store: LosingStore, peers: Sequence[int]) -> None:
    store.loses = "time-ticks/"
    with pytest.raises(Refused, match="repeat the change if it is not there") as caught:
        await change(system, peers)
    assert caught.value.refusal.code is StreamingCode.UNKNOWN


async def stored_settings(store: LosingStore) -> TickSettings | None:
    key = settings_key(WRITE_NODES)
    entry = await store.inner.get(key)
    return None if entry is None else decode_settings(key, entry.value)


def test_after_a_close_the_same_peers_pass_only_larger_ticks() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(1.0)
            await system.find(COLLECTOR).ask(CloseTicks(), deadline_s=60.0)
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await report(system, 11, 1, 2)
            await clock.sleep(1.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10, T0 + 11]

    seeded(scenario)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_dies_the_tick_promise_is_kept_and_ticks_come_back(seed: int) -> None:
    """Writers take timestamps, write with them, and report; actors die, channels go away.

    After a tick on a channel no data at or below it follows, and ticks grow on each channel but for
    repeats of the same one.
    """

    async def scenario(clock: VirtualClock) -> None:
        random, store, channels = Random(seed), ShakyStore(MemoryMetaStore(), clock), Channels()
        policy = (TickPolicy.MINIMUM, TickPolicy.LIST)[seed % 2]
        now = kills = 0
        pending: dict[int, list[int]] = {1: [], 2: [], 3: []}

        def written(timestamp: int) -> None:
            newest = channels.logs[CHANNELS[0]]
            assert not newest or timestamp > newest[-1] - T0, (timestamp, newest)

        async with run_master(store, channels, clock) as system:
            await set_ticks(system, (1, 2, 3), policy)
            for _ in range(150):
                now += 1
                writer = random.choice([1, 2, 3])
                match random.randrange(8):
                    case 0 | 1:
                        pending[writer].append(now)
                    case 2 | 3 if pending[writer]:
                        written(pending[writer].pop(random.randrange(len(pending[writer]))))
                    case 4 | 5:
                        # With LIST all report one tick: the smallest that is complete everywhere.
                        all_pending = [it for of in pending.values() for it in of]
                        mine = pending[writer] if policy is TickPolicy.MINIMUM else all_pending
                        peers = (writer,) if policy is TickPolicy.MINIMUM else (1, 2, 3)
                        with suppress(ActorError):  # the collector is restarting
                            await report(system, min(mine, default=now + 1) - 1, *peers)
                    case 6 if kills < RESTARTS_MAX // 2:
                        with suppress(ActorError):
                            system.kill(random.choice([COLLECTOR, SENDER]))
                            kills += 1
                    case _:
                        channels.away = set(random.sample(CHANNELS[1:], random.randrange(3)))
                        store.lost_races = random.randrange(2)
                await clock.sleep(random.choice([0.0, 0.01, 0.3]))
            channels.away, store.lost_races = set(), 0
            await clock.sleep(30.0)
            now += 1
            await report(system, now, 1, 2, 3)
            await clock.sleep(30.0)
            for log in channels.logs.values():
                assert log == sorted(log)
                assert log[-1] == T0 + now

    seeded(scenario, seed)


def test_a_dead_collector_forgets_all_reports_and_waits_for_everyone() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await report(system, 20, 1)
            await clock.sleep(1.0)
            system.kill(COLLECTOR)
            await clock.sleep(1.0)
            await report(system, 30, 2)
            await clock.sleep(5.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10]
            assert (await view_of(system)).waits_for == (1,)
            await report(system, 25, 1)
            await clock.sleep(1.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10, T0 + 25]

    seeded(scenario)


def test_old_reports_that_arrive_after_a_death_send_nothing_again() -> None:
    async def scenario(clock: VirtualClock) -> None:
        channels = Channels()
        async with run_master(MemoryMetaStore(), channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(1.0)
            await report(system, 20, 1, 2)
            await clock.sleep(1.0)
            system.kill(COLLECTOR)
            await clock.sleep(1.0)
            await report(system, 10, 1, 2)
            await clock.sleep(5.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10, T0 + 20]

    seeded(scenario)


def test_a_collector_that_restarts_before_a_tick_is_recorded_sends_no_smaller_one() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store, channels = MemoryMetaStore(), Channels()
        write, recorded = store.write, anyio.Event()

        async def late(
            puts: Mapping[str, bytes],
            *,
            deletes: Sequence[str] = (),
            expect: Mapping[str, int] | None = None,
        ) -> int:
            if str(T0 + 20).encode() in puts.values():
                await recorded.wait()
            return await write(puts, deletes=deletes, expect=expect)

        async with run_master(store, channels, clock) as system:
            await set_ticks(system)
            await report(system, 10, 1, 2)
            await clock.sleep(1.0)
            store.write = late  # type: ignore[method-assign]
            await report(system, 20, 1, 2)
            await clock.sleep(1.0)
            system.kill(COLLECTOR)
            await clock.sleep(1.0)
            recorded.set()
            await clock.sleep(1.0)
            await report(system, 15, 1, 2)
            await clock.sleep(5.0)
            assert channels.logs == {channel: [T0 + 10, T0 + 20] for channel in CHANNELS}
            await report(system, 30, 1, 2)
            await clock.sleep(5.0)
            assert channels.logs[CHANNELS[0]] == [T0 + 10, T0 + 20, T0 + 30]
            assert (await view_of(system)).sent == T0 + 30

    seeded(scenario)
