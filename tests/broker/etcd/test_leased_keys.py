"""Keys of processes that run: there while they do, gone when they have ended."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.leased_keys import LeasedKeys
from broker.etcd.place import etcd_place
from broker.ports.meta import MetaError
from broker.transport.codec import WireMessage
from schemas.generated.etcdserverpb import LeaseKeepAliveResponse
from tests.broker.etcd.lossy_member import A, LossyMember
from tests.local_etcd import EtcdServer

GUARD_S = 120.0
"""Against hanging."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


async def opened(etcd: EtcdServer, prefix: str) -> EtcdMetaStore:
    place = etcd_place(f"etcd://{etcd.address}/{prefix}")
    return await EtcdMetaStore.open(place, owner="me", call_s=30)


def leases(etcd: EtcdServer) -> set[str]:
    return {it["ID"] for it in etcd.post("lease/leases", {}).get("leases", [])}


async def test_a_process_is_there_while_its_block_runs(etcd: EtcdServer) -> None:
    async with await opened(etcd, "block") as store:
        assert await store.present() == {}
        async with store.announced("coordinator/a", b"a:1"), store.announced("node/1", b"b:1"):
            assert await store.present() == {"coordinator/a": b"a:1", "node/1": b"b:1"}
            assert await store.list("", limit=10) == [], "they are no entries of the port"
        assert await store.present() == {}


async def test_a_lease_that_is_gone_is_replaced_and_one_that_is_there_is_renewed(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd, "renewed") as store:
        before = leases(etcd)
        async with store.announced("a", b"a:1") as keys:
            (lease,) = leases(etcd) - before
            await keys.renew()
            assert leases(etcd) - before == {lease}
            etcd.post("lease/revoke", {"ID": lease})
            assert await store.present() == {}
            await keys.renew()
            assert await store.present() == {"a": b"a:1"}
        assert leases(etcd) == before


class LaggingMember(LossyMember):
    """Answers keepalives as a member does that was cut off: the leader's answer, its own revision.

    etcd fills the header of LeaseKeepAlive from the member that was asked.
    """

    async def ask(
        self, path: str, request: WireMessage, answer: type[A], token: str, deadline_s: float
    ) -> A:
        found = await super().ask(path, request, answer, token, deadline_s)
        if isinstance(found, LeaseKeepAliveResponse):
            assert found.header is not None
            found.header.revision -= 1
        return found


async def test_a_member_that_lags_behind_may_renew_a_lease(etcd: EtcdServer) -> None:
    async with await opened(etcd, "lagging") as store:
        store._members._members[0] = LaggingMember(store._members._members[0], lambda: "")
        async with store.announced("a", b"a:1") as keys:
            seen = store.revision
            await keys.renew()
            await store.write({"k": b"v"})
            assert store.revision > seen


class NotedKeys(LeasedKeys):
    """Knows when the newest renewal that was answered began: etcd counts from then, or later."""

    renewed_s = float("-inf")

    async def renew(self) -> None:
        began_s = anyio.current_time()
        await super().renew()
        self.renewed_s = began_s


async def test_keys_are_kept_for_longer_than_their_lease(etcd: EtcdServer) -> None:
    async with await opened(etcd, "kept") as store:
        keys = NotedKeys(store._members, {store._keys.present + b"a": b"a:1"}, ttl_s=3)
        before = leases(etcd)
        async with keys, anyio.create_task_group() as tasks:
            tasks.start_soon(keys.keep)
            (lease,) = leases(etcd) - before
            granted_s = int(ttl(etcd, lease)["grantedTTL"])
            since_s = anyio.current_time()
            with anyio.fail_after(GUARD_S):
                while anyio.current_time() - since_s < 2 * granted_s:
                    sure_until_s = keys.renewed_s + granted_s - 1
                    found = await store.present()
                    if anyio.current_time() < sure_until_s:
                        assert found == {"a": b"a:1"}
                    else:  # the machine stood still, and the lease may have ended: once more
                        since_s = anyio.current_time()
                    await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()


def ttl(etcd: EtcdServer, lease: str) -> dict[str, str]:
    found: dict[str, str] = etcd.post("lease/timetolive", {"ID": lease})
    return found


async def test_without_etcd_nothing_is_announced_and_leaving_ends_soon(tmp_path: Path) -> None:
    with EtcdServer(tmp_path) as server:
        async with await opened(server, "away") as store:
            async with store.announced("a", b"a:1") as keys:
                server.kill()
                store._members.call_s = 0.5  # only now: no answer comes any more
                with pytest.raises(MetaError, match="no answer from"):
                    await keys.renew()
            with pytest.raises(MetaError, match="no answer from"):
                async with store.announced("b", b"b:1"):
                    pass
