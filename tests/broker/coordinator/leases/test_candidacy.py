"""Processes that stand by: who follows a leader that ended, that is silent, or that lives."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from actors.testing import run_seeded
from broker.coordinator.json_records import UnreadableRecord
from broker.coordinator.leases.candidacy import LOOK_S, READ_S, Candidacy
from broker.coordinator.leases.leader_lease import ANSWER_SHARE
from broker.coordinator.leases.leader_records import HOLDER_KEY, LEADER_KEY, read_leader
from broker.coordinator.leases.leadership import Deposed, lead
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.leader_check import Candidate
from broker.ports.meta import UnusableStore
from tests.broker.coordinator.fakes import LosingStore, ShakyStore

LEASE_S = 5.0
SOON_S = READ_S + LOOK_S


class CandidatesFake:
    """Processes of one store; `ended` has the names of those known to have ended."""

    def __init__(self, name: str, ended: set[str]) -> None:
        self._own = Candidate(name, f"{name}:1")
        self.ended = ended

    @property
    def own(self) -> Candidate:
        return self._own

    async def has_ended(self, name: str) -> bool:
        return name in self.ended

    async def running(self) -> list[Candidate]:
        return [self._own]


class World:
    def __init__(self) -> None:
        self.store = ShakyStore(MemoryMetaStore())
        self.ended: set[str] = set()

    def candidacy(self, name: str, lease_s: float = LEASE_S) -> Candidacy:
        return Candidacy(self.store, CandidatesFake(name, self.ended), lease_s)


def play(scenario: Callable[[World], Coroutine[Any, Any, None]], seed: int = 3) -> None:
    run_seeded(seed, lambda: scenario(World()))


def test_the_first_one_leads_at_once_and_the_next_one_knows_its_address() -> None:
    async def scenario(world: World) -> None:
        led, lease = await world.candidacy("a").until_leading()
        assert (led.term, lease.term) == (1, 1)
        assert 0 < lease.left_s <= LEASE_S * ANSWER_SHARE
        second = world.candidacy("b")
        assert second.leader == ""
        assert await second.attempt() is None
        assert second.leader == "a:1"

    play(scenario)


def test_a_leader_whose_process_ended_is_followed_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        second = world.candidacy("b")
        assert await second.attempt() is None
        world.ended.add("a")
        began_s = anyio.current_time()
        led, _ = await second.until_leading()
        assert led.term == 2
        assert anyio.current_time() - began_s <= SOON_S

    play(scenario)


def test_a_leader_that_has_ended_in_order_is_followed_as_soon_as_the_store_tells() -> None:
    async def scenario(_world: World) -> None:
        store, followed_s = MemoryMetaStore(), list[float]()
        first, _lease = await Candidacy(store, CandidatesFake("a", set()), LEASE_S).until_leading()
        second = Candidacy(store, CandidatesFake("b", set()), LEASE_S)

        async def follow() -> None:
            led, _lease = await second.until_leading()
            assert led.term == 2
            followed_s.append(anyio.current_time())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            # Just behind a look at the store: one at once, one when it is first told, and another.
            await anyio.sleep(LOOK_S + READ_S + 0.01)
            ended_s = anyio.current_time()
            await first.end()
        assert followed_s[0] - ended_s <= LOOK_S

    play(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_of_those_that_see_a_leader_end_at_once_one_follows(seed: int) -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        world.ended.add("a")
        terms = []

        async def follow(name: str) -> None:
            led, _ = await world.candidacy(name).until_leading()
            terms.append(led.term)

        async with anyio.create_task_group() as tasks:
            for name in ("b", "c", "d"):
                tasks.start_soon(follow, name)
            await anyio.sleep(LEASE_S / 2)
            assert terms == [2], "the others see that it lives"
            tasks.cancel_scope.cancel()

    play(scenario, seed)


def test_a_silent_leader_is_followed_after_its_lease_and_not_before() -> None:
    async def scenario(world: World) -> None:
        first, lease = await world.candidacy("a").until_leading()
        began_s = anyio.current_time()
        led, _ = await world.candidacy("b").until_leading()
        assert LEASE_S <= anyio.current_time() - began_s <= LEASE_S + 2 * SOON_S
        assert led.term == 2
        assert lease.left_s <= 0, "it answered nobody any more by then"
        with pytest.raises(Deposed):
            await first.write({"x": b"late"})
        await lease.renew()
        assert lease.left_s < 0

    play(scenario)


def test_a_leader_that_renews_behind_the_look_of_another_is_not_followed() -> None:
    """It was silent for a lease, and goes on between that one's read and its write."""

    async def scenario(world: World) -> None:
        _, lease = await world.candidacy("a").until_leading()

        class GoesOn(CandidatesFake):
            async def has_ended(self, name: str) -> bool:
                if anyio.current_time() - began_s >= LEASE_S:
                    await lease.renew()  # behind the read, before the write
                return await super().has_ended(name)

        began_s = anyio.current_time()
        second = Candidacy(world.store, GoesOn("b", world.ended), LEASE_S)
        assert await second.attempt() is None
        await anyio.sleep(LEASE_S)
        following = await second.attempt()
        assert following is None or lease.left_s <= 0, "both answer now"
        assert lease.left_s > 0

    play(scenario)


def test_a_leader_that_renews_is_not_followed() -> None:
    async def scenario(world: World) -> None:
        _, lease = await world.candidacy("a").until_leading()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.keep)
            with anyio.move_on_after(10 * LEASE_S):
                await world.candidacy("b").until_leading()
            assert lease.left_s > 0
            tasks.cancel_scope.cancel()
        assert (await read_leader(world.store)).term == 1

    play(scenario)


def test_the_longer_one_of_two_leases_counts() -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a", lease_s=3 * LEASE_S).until_leading()
        began_s = anyio.current_time()
        await world.candidacy("b").until_leading()
        assert anyio.current_time() - began_s >= 3 * LEASE_S

    play(scenario)


def test_a_leader_that_recorded_nothing_of_itself_is_followed_when_it_has_ended() -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        # As `tidemark serve` leads, which has the folder alone.
        await lead(world.store)
        seen = await read_leader(world.store)
        assert (seen.term, seen.holder) == (2, Candidate("", ""))
        world.ended.add("")
        led, _ = await world.candidacy("b").until_leading()
        assert led.term == 3

    play(scenario)


def test_a_store_that_is_away_is_waited_for_and_gives_nobody_the_lead() -> None:
    async def scenario(world: World) -> None:
        _, lease = await world.candidacy("a").until_leading()
        second = world.candidacy("b")
        assert await second.attempt() is None
        world.store.broken = True
        await lease.renew()
        with anyio.move_on_after(3 * LEASE_S):
            await second.until_leading()
        assert lease.left_s <= 0
        world.store.broken = False
        await lease.renew()
        assert lease.left_s > 0
        assert await second.attempt() is None

    play(scenario)


def test_each_outage_of_the_store_is_told_once() -> None:
    async def scenario(world: World) -> None:
        _, lease = await world.candidacy("a").until_leading()
        with capture_logs() as lines:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep)
                tasks.start_soon(world.candidacy("b").until_leading)
                for broken in (False, True, False, True, False):
                    world.store.broken = broken
                    await anyio.sleep(4 * READ_S)
                tasks.cancel_scope.cancel()
        told = [it["error"] for it in lines if it["event"].startswith("standing by")]
        assert told == ["disk full", "disk full"], "the leader tells its own"

    play(scenario)


def test_who_stands_by_at_a_store_that_answers_nothing_more_gives_up_with_its_text() -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        world.store.broken = True
        world.store.failure = UnusableStore("etcd was restored from a backup")
        with anyio.fail_after(LEASE_S), pytest.raises(UnusableStore, match="from a backup"):
            await world.candidacy("b").until_leading()

    play(scenario)


@pytest.mark.parametrize(
    ("key", "record", "text"),
    [
        (LEADER_KEY, b"x", "leader: stored value is not a number"),
        (HOLDER_KEY, b"{", "leader/holder: stored record is unreadable"),
        (HOLDER_KEY, b'{"version":9}', "leader/holder: record version 9"),
    ],
)
def test_a_record_that_cannot_be_read_is_told(key: str, record: bytes, text: str) -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        await world.store.write({key: record})
        with pytest.raises(UnreadableRecord, match=text):
            await world.candidacy("b").until_leading()

    play(scenario)


def test_a_leader_that_says_it_has_ended_is_followed_at_once() -> None:
    async def scenario(world: World) -> None:
        led, _ = await world.candidacy("a").until_leading()
        second = world.candidacy("b")
        assert await second.attempt() is None
        await led.end()
        following = await second.attempt()
        assert following is not None
        assert following[0].term == 2
        assert await world.candidacy("c").attempt() is None, "the end was of an earlier term"
        await led.end()
        assert not (await read_leader(world.store)).ended, "a follower's term is not touched"

    play(scenario)


def test_a_leader_without_a_name_is_not_judged_by_its_silence() -> None:
    async def scenario(world: World) -> None:
        await lead(world.store)
        second = world.candidacy("b")
        assert await second.attempt() is None
        await anyio.sleep(3 * LEASE_S)
        assert await second.attempt() is None
        world.ended.add("")
        assert await second.attempt() is not None

    play(scenario)


class StoppedBehindWrite(ShakyStore):
    """Once there is a `stop`, the next write is applied, and then its task is cancelled."""

    stop: anyio.CancelScope | None = None

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        revision = await super().write(puts, deletes=deletes, expect=expect)
        if self.stop is not None:
            self.stop.cancel()
            self.stop = None
            await anyio.lowlevel.checkpoint()
        return revision


def test_a_lead_that_a_stop_met_at_its_write_is_followed_without_a_wait_for_its_lease() -> None:
    async def scenario(_: World) -> None:
        store = StoppedBehindWrite(MemoryMetaStore())
        first = Candidacy(store, CandidatesFake("a", set()), LEASE_S)
        with anyio.CancelScope() as store.stop:
            try:
                await first.until_leading()
            finally:
                await first.withdraw()
        assert (await read_leader(store)).holder.name == "a"
        second = await Candidacy(store, CandidatesFake("b", set()), LEASE_S).attempt()
        assert second is not None
        assert second[0].term == 2

    play(scenario)


def test_who_withdraws_without_a_lead_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.candidacy("a").until_leading()
        second = world.candidacy("b")
        assert await second.attempt() is None
        written = world.store.writes
        await second.withdraw()
        world.ended.add("a")
        world.store.lost_races = 1
        assert await second.attempt() is None
        await second.withdraw()
        world.store.broken = True
        await second.withdraw()
        assert world.store.writes == written
        world.store.broken = False
        assert await world.candidacy("c").attempt() is not None

    play(scenario)


def test_a_lead_whose_answer_was_lost_is_followed_by_its_own_process_at_once() -> None:
    async def scenario(_: World) -> None:
        store = LosingStore(MemoryMetaStore())
        store.loses = LEADER_KEY
        began_s = anyio.current_time()
        led, lease = await Candidacy(store, CandidatesFake("a", set()), LEASE_S).until_leading()
        assert anyio.current_time() - began_s <= SOON_S
        assert (led.term, lease.term) == (2, 2)
        await led.write({"x": b"1"})
        other = Candidacy(store, CandidatesFake("b", set()), LEASE_S)
        assert await other.attempt() is None, "the lead of the lost answer is not the one in force"

    play(scenario)
