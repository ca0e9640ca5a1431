"""A coordinator that leads and whose metadata takes no writes: who asks is told, and why."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker, bind
from broker.app.leading import standing_by
from broker.client import Client, Deadlines, connect
from broker.client.cluster import Health
from broker.client.errors import DeadlineExceeded
from broker.data_folder import DataFolder
from broker.meta.memory_store import MemoryMetaStore
from broker.process_settings import Settings
from tests.broker.app.test_http_endpoint import fetch, ready
from tests.broker.coordinator.fakes import ShakyStore
from tests.local_etcd import EtcdServer
from tests.roles_processes import until

LEASE_S = 4.0
"""The least that the setting takes."""
CALL_S = Deadlines(call_s=6.0)
"""`health` takes as long while nobody says who the nodes are."""
NOT_RENEWED = "The lease of the leader cannot be renewed in the metadata"


@asynccontextmanager
async def leader(data: Path, **given: Any) -> AsyncIterator[Broker]:
    """A coordinator that leads, in the process of the test; it has no nodes."""
    settings = Settings(
        data_dir=data,
        listen="127.0.0.1:0",
        pchannels=1,
        http_port=0,
        leader_lease_s=LEASE_S,
        drain_s=1.0,
        **given,
    )
    with bind(settings.listen) as bound:
        async with standing_by.run_candidate(settings, DataFolder(data), bound) as broker:
            yield broker


async def refuses(broker: Broker) -> bool:
    status, _ = await ready(broker.http)
    return status == 503


async def leads(broker: Broker) -> bool:
    return not await refuses(broker)


async def told_as_not_leading(broker: Broker, log: Client, cause: str) -> None:
    """Once nothing is left of the lease; `cause`: a pattern."""
    await until(lambda: refuses(broker))
    _, (reason,) = await ready(broker.http)
    refuses_calls = "this coordinator, of term 1, does not lead at the moment"
    assert re.fullmatch(f"{refuses_calls}\\. {cause}", reason), reason
    assert (await fetch(broker.http, "/healthz"))[0] == 200, "the process lives"
    found = await log.admin.health()
    assert (found.state, found.leader, found.standbys) == ("degraded", "", ())
    assert found.warnings == (reason,)
    with pytest.raises(DeadlineExceeded, match=f"last error: .* try again. {cause}"):
        async with connect(broker.address):
            pass
    _, _, metrics = await fetch(broker.http, "/metrics")
    assert "tidemark_coordinator_leads 0" in metrics


async def well(broker: Broker, log: Client) -> Health:
    await until(lambda: leads(broker))
    found = await log.admin.health()
    assert found.leader == broker.address
    assert found.warnings == ()
    return found


async def test_a_leader_whose_store_takes_no_writes_tells_it_everywhere_and_goes_on_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ShakyStore(MemoryMetaStore())

    @asynccontextmanager
    async def metadata(*_: object) -> AsyncIterator[ShakyStore]:
        yield store

    monkeypatch.setattr(standing_by, "metadata", metadata)
    async with leader(tmp_path) as broker, connect(broker.address, deadlines=CALL_S) as log:
        before = await well(broker, log)
        store.broken = True
        await told_as_not_leading(broker, log, f"{NOT_RENEWED}: disk full")
        store.broken = False
        assert (await well(broker, log)).state == before.state


async def test_a_leader_whose_etcd_is_full_says_what_to_do_and_goes_on_after_the_alarm(
    tmp_path: Path,
) -> None:
    full = EtcdServer(tmp_path / "etcd")
    meta = f"etcd://{full.address}/tidemark"
    with full:
        async with (
            leader(tmp_path, meta=meta) as broker,
            connect(broker.address, deadlines=CALL_S) as log,
        ):
            before = await well(broker, log)
            (member,) = full.post("cluster/member/list", {})["members"]
            # As etcd does when it has reached its --quota-backend-bytes.
            alarm = {"memberID": member["ID"], "alarm": "NOSPACE"}
            full.post("maintenance/alarm", {"action": "ACTIVATE", **alarm})
            said = "etcd at .*: mvcc: database space exceeded: its database is full; compact .*"
            await told_as_not_leading(broker, log, f"{NOT_RENEWED}: {said} `etcdctl alarm disarm`")
            full.post("maintenance/alarm", {"action": "DEACTIVATE", **alarm})
            assert (await well(broker, log)).state == before.state
