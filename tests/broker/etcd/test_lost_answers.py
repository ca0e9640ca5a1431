"""Each write is applied once or never, whichever requests and answers get lost or come late."""

import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence

import anyio
import pytest

from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.etcd.requests import DELETE_RANGE
from broker.etcd.write_places import LEFT_MIN, PLACES, RENEW_S
from broker.ports.meta import Conflict, MetaError, WriteUnconfirmed
from tests.broker.etcd.lossy_member import LossyMember, lossy
from tests.local_etcd import EtcdServer


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


async def opened(etcd: EtcdServer, prefix: str = "") -> EtcdMetaStore:
    place = etcd_place(f"etcd://{etcd.address}/{prefix or secrets.token_hex(8)}")
    return await EtcdMetaStore.open(place, owner="me")


def first(*outcomes: str) -> Callable[[], str]:
    """These outcomes, then none that fails."""
    left = list(outcomes)
    return lambda: left.pop(0) if left else ""


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_write_is_repeated_and_takes_effect_once(etcd: EtcdServer, how: str) -> None:
    async with await opened(etcd) as store:
        before = await store.write({"a": b"1"})
        lossy(store, first(how, how))
        # Applied twice, the second time would not find the revision that it expects.
        after = await store.write({"a": b"2"}, expect={"a": before})
        entry = await store.get("a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"2", after)
        assert await store.write({"a": b"3"}, expect={"a": after}) > after


async def test_an_earlier_attempt_that_comes_later_changes_nothing(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"0"})
        member = lossy(store, first("late"))
        await store.write({"a": b"1"})
        await store.write({"a": b"2"})
        for deliver in member.late:
            await deliver()
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"2"


async def test_a_conflict_after_a_lost_attempt_is_a_conflict(etcd: EtcdServer) -> None:
    async with await opened(etcd, "shared") as one, await opened(etcd, "shared") as two:
        old = await one.write({"a": b"1"})
        await two.write({"a": b"2"})
        lossy(one, first("late"))
        with pytest.raises(Conflict):
            await one.write({"a": b"3"}, expect={"a": old})


async def test_a_lost_attempt_that_a_vanishing_key_could_let_through_is_not_called_a_conflict(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd, "vanishing") as one, await opened(etcd, "vanishing") as two:
        await one.write({"b": b""})  # makes its places
        await two.write({"a": b"theirs"})
        member = lossy(one, first("late"))
        with pytest.raises(WriteUnconfirmed):
            await one.write({"a": b"mine"}, expect={"a": 0})
        await two.write({}, deletes=["a"])
        assert await one.get("a") is None
        for deliver in member.late:
            await deliver()
        assert await one.get("a") is None


@pytest.mark.parametrize("seed", range(12))
async def test_what_a_store_once_showed_stays_whatever_was_lost(
    etcd: EtcdServer, seed: int
) -> None:
    chance = random.Random(seed)
    async with await opened(etcd) as store:
        await store.write({"a": b"0"})
        member = lossy(store, lambda: chance.choice(["", "", "", "before", "after", "late"]))
        store._members.call_s = 0.015  # so that many calls stay without an answer
        shown, may_be = b"0", {b"0"}
        for number in range(1, 60):
            value = b"%d" % number
            try:
                await store.write({"a": value})
                may_be = {value}
            except WriteUnconfirmed:
                may_be = {shown, value}
            except MetaError:
                may_be = {shown}
            await some_late(member, chance)
            shown = await read(store, member)
            assert shown in may_be
            await some_late(member, chance)
            assert await read(store, member) == shown


async def some_late(member: LossyMember, chance: random.Random) -> None:
    """Some of the late requests reach etcd, in any order; each may be refused."""
    chance.shuffle(member.late)
    while member.late and chance.random() < 0.6:
        try:
            await member.late.pop()()
        except MetaError:
            pass


async def read(store: EtcdMetaStore, member: LossyMember) -> bytes:
    """With nothing lost, and as long as it takes."""
    fails, member.fails = member.fails, lambda: ""
    call_s, store._members.call_s = store._members.call_s, 30
    entry = await store.get("a")
    member.fails, store._members.call_s = fails, call_s
    assert entry is not None
    return entry.value


async def test_a_write_cancelled_at_any_moment_is_whole_or_absent_and_decided(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        for yields in range(40):
            keys = [f"a{yields}", f"b{yields}"]
            async with anyio.create_task_group() as writers:
                writers.start_soon(store.write, dict.fromkeys(keys, b"1"))
                for _ in range(yields):
                    await anyio.lowlevel.checkpoint()
                writers.cancel_scope.cancel()
            found = await store.get_many(keys)
            assert (found[0] is None) is (found[1] is None)
            assert await store.get_many(keys) == found
        await store.write({"after": b"1"})


AWAY_S = 0.5
"""Of a call to an etcd that is away."""


async def failures_of(calls: Sequence[Callable[[], Awaitable[object]]]) -> tuple[int, float]:
    """How many of these calls, made at once, the store fails, and how long that takes."""
    failed, began_s = [], anyio.current_time()

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except MetaError as error:
            failed.append(error)

    async with anyio.create_task_group() as calling:
        for call in calls:
            calling.start_soon(one, call)
    return len(failed), anyio.current_time() - began_s


async def with_a_lost_write(store: EtcdMetaStore) -> LossyMember:
    """The member of a store whose last write was lost; etcd is away since then."""
    await store.write({"a": b"0"})
    member = lossy(store)
    member.away, store._members.call_s = True, AWAY_S
    with pytest.raises(WriteUnconfirmed):
        await store.write({"a": b"1"})
    return member


async def test_all_calls_behind_a_lost_write_fail_together_while_etcd_is_away(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        member = await with_a_lost_write(store)
        reads = [lambda: store.get("a")] * 20
        failed, took_s = await failures_of([*reads, *[lambda: store.write({"a": b"2"})] * 20])
        assert failed == 40
        assert took_s < 2 * AWAY_S
        member.away = False
        assert (await failures_of(reads))[0] == 0
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"0"


async def test_all_writes_that_need_new_places_fail_together_while_etcd_is_away(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"0"})
        store._writers._made_s -= 2 * RENEW_S
        member = lossy(store)
        member.away, store._members.call_s = True, AWAY_S
        failed, took_s = await failures_of([lambda: store.write({"a": b"1"})] * 20)
        assert failed == 20
        assert took_s < 2 * AWAY_S
        member.away = False
        await store.write({"a": b"2"})


SLOW_S = 1.0
"""Of a call to an etcd that is slow."""


async def with_lost_writes(store: EtcdMetaStore, count: int) -> LossyMember:
    """The member of a store of which so many writes were lost; etcd is back, and may be slow."""
    await store.write({"a": b"0"})
    member = lossy(store)
    member.away, store._members.call_s = True, AWAY_S
    lost = [lambda: store.write({"a": b"1"})] * count
    assert (await failures_of(lost))[0] == count
    assert len(store._writers._open) == count
    member.away, store._members.call_s = False, SLOW_S
    return member


async def test_no_read_fails_behind_many_lost_writes_of_an_etcd_that_is_slow_but_answers(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        member = await with_lost_writes(store, 8)
        member.takes_s = lambda path: 0.3 * SLOW_S if path == DELETE_RANGE else 0.0
        assert (await failures_of([lambda: store.get("a")] * 5))[0] == 0
        assert store._writers._open == []


async def test_a_call_whose_turn_comes_late_has_the_whole_time_of_a_call(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        member = await with_lost_writes(store, 1)
        asked: list[str] = []

        def takes_s(path: str) -> float:
            if path != DELETE_RANGE:
                return 0.0
            if not asked:  # another write is lost while this turn lasts
                store._writers._open.append(b"lost later")
            asked.append(path)
            return 0.6 * SLOW_S

        member.takes_s = takes_s
        assert (await failures_of([lambda: store.get("a")] * 2))[0] == 0
        assert (len(asked), store._writers._open) == (2, [])


async def test_a_call_that_gets_no_turn_says_what_it_waits_for(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await with_lost_writes(store, 1)
        store._members.call_s = AWAY_S
        text = r"no answer from etcd://.* for this call within 0\.5 s: others of this process"

        async def behind() -> None:
            with pytest.raises(MetaError, match=text):
                await store.get("a")

        async with store._writers._lock, anyio.create_task_group() as waiting:
            waiting.start_soon(behind)
        await store.get("a")


async def test_each_request_for_new_places_has_the_whole_time_of_a_call(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"0"})
        lease = store._writers._lease
        store._writers._made_s -= 2 * RENEW_S
        store._members.call_s = SLOW_S
        lossy(store).takes_s = lambda _: 0.6 * SLOW_S
        await store.write({"a": b"1"})
        assert store._writers._lease != lease


async def test_a_read_that_is_cancelled_while_it_decides_leaves_that_to_the_next(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        member = await with_a_lost_write(store)
        first_read = anyio.CancelScope()

        async def cancelled() -> None:
            with first_read:
                await store.get("a")

        async with anyio.create_task_group() as reading:
            reading.start_soon(cancelled)
            for _ in range(5):
                reading.start_soon(store.get, "a")
            while store._writers._lock.statistics().tasks_waiting < 5:
                await anyio.lowlevel.checkpoint()
            member.away = False
            first_read.cancel()
        assert first_read.cancelled_caught
        assert store._writers._open == []


async def test_places_that_were_lost_are_replaced(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"0"})
        lease = store._writers._lease
        for number in range(PLACES - LEFT_MIN + 1):
            with anyio.CancelScope() as scope:
                member = lossy(store, first("late"))
                member.fails = lambda scope=scope: scope.cancel() or ""  # type: ignore[misc]
                await store.write({"a": b"%d" % number})
            assert scope.cancelled_caught
            store._members._members[0] = member._member
        await store.write({"a": b"last"})
        assert store._writers._lease != lease
        assert store._writers._open == []


async def test_a_lease_that_an_operator_revokes_costs_no_write(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        before = await store.write({"a": b"0"})
        etcd.post("lease/revoke", {"ID": str(store._writers._lease)})
        after = await store.write({"a": b"1"}, expect={"a": before})
        assert after > before


async def test_many_writes_at_once_all_get_their_turn(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        revisions: list[int] = []

        async def write(number: int) -> None:
            revisions.append(await store.write({f"{number:04d}": b"1"}))

        async with anyio.create_task_group() as writers:
            for number in range(4 * PLACES):
                writers.start_soon(write, number)
        assert len(set(revisions)) == 4 * PLACES
        assert len(await store.list("", limit=1000)) == 4 * PLACES


async def test_closing_takes_the_places_away(etcd: EtcdServer) -> None:
    async with await opened(etcd, "closing") as store:
        await store.write({"a": b"0"})
    start, end = "Y2xvc2luZy90aWRlbWFyay93", "Y2xvc2luZy90aWRlbWFyay94"  # closing/tidemark/w, /x
    assert etcd.post("kv/range", {"key": start, "range_end": end}).get("kvs", []) == []
