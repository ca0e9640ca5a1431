"""How long a leader answers, against those that wait to take over."""

import anyio
import pytest

from actors.testing import run_seeded
from broker.coordinator.leases.candidacy import Candidacy
from broker.coordinator.leases.leader_lease import ANSWER_SHARE
from broker.meta.memory_store import MemoryMetaStore
from broker.remote.remote_coordinator import RESERVE_S
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
