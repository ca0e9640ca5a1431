"""How long a leader answers, against those that wait to take over."""

from collections.abc import Mapping, Sequence

import anyio
import pytest
from structlog.testing import capture_logs

from actors.testing import run_seeded
from broker.coordinator.leases.candidacy import Candidacy
from broker.coordinator.leases.leader_lease import ANSWER_SHARE, RENEWALS_PER_LEASE, LeaderLease
from broker.coordinator.leases.leadership import lead
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import LastingFailure, MetaError, MetaStore, WriteUnconfirmed
from broker.remote.remote_coordinator import RESERVE_S
from tests.broker.coordinator.fakes import ShakyStore
from tests.broker.coordinator.leases.test_candidacy import LEASE_S, CandidatesFake

SHORTEST_S = 4.0
"""The least of the setting `leader_lease_s`."""


def test_an_answer_of_a_leader_that_was_stopped_comes_too_late_to_be_used() -> None:
    assert SHORTEST_S * (1 - ANSWER_SHARE) >= RESERVE_S


@pytest.mark.parametrize("seed", range(20))
def test_no_former_leader_answers_after_another_one_leads_whoever_is_stopped_when(
    seed: int,
) -> None:
    """The first one is stopped at any moment, and its clock shows anything."""

    async def scenario() -> None:
        store, ended = MemoryMetaStore(), set[str]()
        offset_s = 1000.0 * seed
        first = Candidacy(
            store,
            CandidatesFake("a", ended),
            LEASE_S,
            # Another host's clock: any other start.
            now_s=lambda: anyio.current_time() + offset_s,
        )
        _, lease = await first.until_leading()
        with anyio.move_on_after(LEASE_S * seed / 7):
            await lease.keep()
        await Candidacy(store, CandidatesFake("b", ended), LEASE_S).until_leading()
        assert lease.left_s <= 0
        # It goes on: its next renewal is refused, so it never answers again.
        await lease.keep()
        assert lease.left_s < 0

    run_seeded(seed, scenario)


CANNOT = "The lease of the leader cannot be renewed in the metadata"


class RefusingStore(ShakyStore):
    """Refuses writes with `refusal`, if one is set; after `hangs_s`."""

    def __init__(self, store: MetaStore) -> None:
        super().__init__(store)
        self.refusal: MetaError | None = None
        self.hangs_s = 0.0

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        await anyio.sleep(self.hangs_s)
        if self.refusal is not None:
            raise self.refusal
        return await super().write(puts, deletes=deletes, expect=expect)


async def led(store: RefusingStore) -> LeaderLease:
    return LeaderLease(await lead(store), LEASE_S, anyio.current_time())


def test_a_lease_says_why_it_is_not_renewed_until_a_renewal_succeeds() -> None:
    async def scenario() -> None:
        store = RefusingStore(MemoryMetaStore())
        lease = await led(store)
        await lease.renew()
        assert lease.failure == ""
        store.refusal = MetaError("etcd at a:1: its database is full")
        await lease.renew()
        assert lease.left_s > 0
        assert lease.failure == f"{CANNOT}: etcd at a:1: its database is full"
        await anyio.sleep(LEASE_S)
        assert lease.left_s <= 0
        assert lease.failure == f"{CANNOT}: etcd at a:1: its database is full"
        store.refusal = None
        await lease.renew()
        assert (lease.failure, lease.left_s > 0) == ("", True)

    run_seeded(3, scenario)


def test_a_lease_that_ends_while_the_store_is_silent_says_so_before_the_call_fails() -> None:
    async def scenario() -> None:
        store = RefusingStore(MemoryMetaStore())
        lease = await led(store)
        store.hangs_s = 10 * LEASE_S
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.renew)
            await anyio.sleep(LEASE_S / RENEWALS_PER_LEASE)
            assert lease.failure == "", "it may be only slow"
            await anyio.sleep(LEASE_S)
            assert lease.failure == f"{CANNOT}: the metadata store has not answered yet"
            tasks.cancel_scope.cancel()
        assert lease.failure == ""

    run_seeded(3, scenario)


def test_a_lease_that_another_leader_has_ended_has_no_failure_of_the_store() -> None:
    async def scenario() -> None:
        store = RefusingStore(MemoryMetaStore())
        lease = await led(store)
        store.refusal = MetaError("no answer")
        await lease.renew()
        store.refusal = None
        await lead(store)
        await lease.renew()
        assert lease.failure == ""

    run_seeded(3, scenario)


def test_the_log_has_one_line_for_each_change_of_the_renewals_and_none_for_each_try() -> None:
    async def scenario() -> None:
        store = RefusingStore(MemoryMetaStore())
        lease = await led(store)
        with capture_logs() as lines:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep)
                await anyio.sleep(LEASE_S)
                assert not lines
                # Each try names another member of etcd, and may have sent the write or not.
                for member in range(100):
                    kind = WriteUnconfirmed if member % 2 else MetaError
                    store.refusal = kind(f"no answer from member {member}")
                    await anyio.sleep(LEASE_S / RENEWALS_PER_LEASE)
                store.refusal = LastingFailure("permission denied")
                await anyio.sleep(LEASE_S)
                store.refusal = None
                await anyio.sleep(LEASE_S)
                tasks.cancel_scope.cancel()
        told = [(it["log_level"], it.get("error", "").split(" member")[0]) for it in lines]
        assert told == [
            ("warning", "no answer from"),
            ("error", "no answer from"),
            ("error", "permission denied"),
            ("info", ""),
        ]

    run_seeded(3, scenario)
