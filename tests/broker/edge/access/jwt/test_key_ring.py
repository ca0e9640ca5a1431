"""Waiting for keys, in virtual time."""

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from actors.testing import VirtualClock, run_seeded
from broker.core.security.key_refresh import PAUSE_S, KeyRefresh
from broker.edge.access.jwt.key_ring import WAIT_S_MAX, WAITING_MAX, KeyRing
from broker.edge.access.jwt.key_set import KeySet, read_key_set
from tests.jwt_provider import jwk, key_set

OLD = read_key_set(key_set(jwk("old")))
BOTH = read_key_set(key_set(jwk("old"), jwk("new", number=1)))


def ring(keys: KeySet = OLD) -> KeyRing:
    made = KeyRing(KeyRefresh(300.0), VirtualClock().monotonic_s)
    made.begin()
    made.adopt(keys)
    made.end()
    return made


def test_a_call_waits_for_a_key_that_is_not_known_yet() -> None:
    async def main() -> list[str]:
        clock, made, seen = VirtualClock(), ring(), list[str]()
        await clock.sleep(PAUSE_S)

        async def call() -> None:
            await made.until_known("new")
            seen.append("known" if "new" in made.keys.ids else "unknown")

        async with create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            await checkpoint()
            await clock.sleep(0.5)
            assert made.refresh.due(clock.monotonic_s())
            made.begin()
            await clock.sleep(1.0)
            assert not seen
            made.adopt(BOTH)
            made.end()
        assert clock.monotonic_s() == PAUSE_S + 1.5
        return seen

    assert run_seeded(1, main) == ["known"] * 3


def test_a_known_key_and_the_pause_let_a_call_pass_at_once() -> None:
    async def main() -> float:
        made = ring()
        await made.until_known("old")
        await made.until_known("new")
        return VirtualClock().monotonic_s()

    assert run_seeded(1, main) == 0.0


def test_a_call_waits_no_longer_than_it_may() -> None:
    async def main() -> float:
        made = KeyRing(KeyRefresh(300.0), VirtualClock().monotonic_s)
        await made.until_known("new")
        return VirtualClock().monotonic_s()

    assert run_seeded(1, main) == WAIT_S_MAX


def test_one_more_call_than_may_wait_is_decided_by_the_keys_that_are_known() -> None:
    async def main() -> float:
        clock, made = VirtualClock(), KeyRing(KeyRefresh(300.0), VirtualClock().monotonic_s)
        async with create_task_group() as tasks:
            for _ in range(WAITING_MAX):
                tasks.start_soon(made.until_known, "new")
            while made._waiting < WAITING_MAX:
                await checkpoint()
            await made.until_known("new")
            passed_s = clock.monotonic_s()
        # Those that waited have left room.
        await made.until_known("new")
        assert clock.monotonic_s() == 2 * WAIT_S_MAX
        return passed_s

    assert run_seeded(1, main) == 0.0


def test_a_read_that_fails_keeps_the_keys_and_is_told() -> None:
    async def main() -> None:
        clock, made = VirtualClock(), ring()
        assert made.warnings() == []
        await clock.sleep(300.0)
        made.begin()
        made.keep("it is away")
        made.end()
        assert made.keys is OLD
        (told,) = made.warnings()
        assert "not read for 300 s (it is away); the last 1 stay in force" in told
        made.begin()
        made.adopt(BOTH)
        made.end()
        assert made.warnings() == []

    run_seeded(1, main)


def test_health_tells_of_keys_that_are_ignored_and_of_none_at_all() -> None:
    async def main() -> None:
        ignoring, told = ring(read_key_set(key_set(jwk("k", use="enc")))).warnings()
        assert "key 'k' is ignored" in ignoring
        assert "no key that fits: JWTs are refused" in told
        made = KeyRing(KeyRefresh(300.0), VirtualClock().monotonic_s)
        made.begin()
        made.keep("it is away")
        made.end()
        (away,) = made.warnings()
        assert "were not read (it is away); JWTs are refused" in away

    run_seeded(1, main)


def test_a_cancelled_read_lets_callers_go_and_another_read_begin() -> None:
    async def main() -> None:
        clock, made = VirtualClock(), ring()
        await clock.sleep(PAUSE_S)
        async with create_task_group() as tasks:
            made.begin()
            tasks.start_soon(made.until_known, "new")
            await checkpoint()
            made.end()
        assert clock.monotonic_s() == PAUSE_S
        assert made.refresh.want(2 * PAUSE_S)

    run_seeded(1, main)
