"""A coordinator that is stopped while it takes over gives the lead back."""

from pathlib import Path

import anyio

from broker.app import bind
from broker.app.leading.folder_candidates import candidate_of
from broker.app.leading.standing_by import run_candidate
from broker.coordinator.leases.candidacy import Candidacy
from broker.coordinator.leases.leader_records import read_leader
from broker.data_folder import share
from broker.meta.sqlite import SqliteMetaStore
from broker.process_settings import Settings

LISTEN = "127.0.0.1:0"
LEASE_S = 300.0
GUARD_S = 60.0
"""Far below the lease."""


async def test_a_stop_right_after_the_lead_was_written_lets_the_next_one_lead_at_once(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path, listen=LISTEN, pchannels=1, leader_lease_s=LEASE_S)
    with (
        share(tmp_path) as folder,
        candidate_of(folder, "a:1") as candidates,
        anyio.fail_after(GUARD_S),
    ):
        async with await SqliteMetaStore.open(folder.metadata) as store:
            first, _ = await Candidacy(store, candidates, LEASE_S).until_leading()
            standing_by = anyio.Event()
            with anyio.CancelScope() as process:

                async def stand_by() -> None:
                    with bind(LISTEN) as bound:
                        async with run_candidate(
                            settings, folder, bound, standing_by=lambda *_: standing_by.set()
                        ):
                            await anyio.sleep_forever()

                async def stop_once_it_leads() -> None:
                    await standing_by.wait()
                    await first.end()
                    while (await read_leader(store)).term == first.term:
                        pass  # as often as the store answers
                    process.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stand_by)
                    tasks.start_soon(stop_once_it_leads)
            seen = await read_leader(store)
            assert (seen.term, seen.ended) == (2, True)
