"""What etcd tells of changes: only those asked for, also behind a compaction, a kill, a login."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from broker.coordinator.store_changes import Changes
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.ports.meta import MetaError
from tests.local_etcd import EtcdServer, etcd_cluster

GUARD_S = 60.0


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


async def opened(*members: EtcdServer, user: str = "") -> EtcdMetaStore:
    hosts = ",".join([it.address for it in members])
    place = etcd_place(f"etcd://{f'{user}@' if user else ''}{hosts}/tidemark")
    password = f"{user}'s"
    return await EtcdMetaStore.open(place, owner="me", password=lambda: password, call_s=30)


async def test_changes_of_other_keys_end_no_wait(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        since = await store.changed("a/", None, wait_s=0)
        await store.write({"a": b"", "a0": b"", "b/1": b""})
        assert await store.changed("a/", since, wait_s=0.2) == since
        assert await store.present_changed(since, 0.2) == since


async def test_who_announces_itself_and_who_has_gone_ends_a_wait(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        since = await store.present_changed(None, 0)
        with anyio.fail_after(GUARD_S):
            async with store.announced("me", b"here"):
                since = await store.present_changed(since, GUARD_S)
                assert await store.present() == {"me": b"here"}
            assert await store.present_changed(since, GUARD_S) > since
        assert await store.present() == {}


async def test_what_was_compacted_away_before_it_was_told_ends_the_wait(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        since = await store.changed("a/", None, wait_s=0)
        for _ in range(3):
            newest = await store.write({"a/1": b""})
        etcd.post("kv/compaction", {"revision": str(newest), "physical": True})
        with anyio.fail_after(GUARD_S):
            assert await store.changed("a/", since, wait_s=GUARD_S) >= newest


async def test_a_member_that_dies_ends_the_wait_and_the_next_one_tells(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path) as members:
        async with await opened(*members) as store:
            since = await store.changed("a/", None, wait_s=0)
            with anyio.fail_after(GUARD_S):
                async with anyio.create_task_group() as tasks:

                    async def wait() -> None:
                        with pytest.raises(MetaError):
                            await store.changed("a/", since, wait_s=GUARD_S)

                    tasks.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    members[store._members._now].kill()
                revision = await store.write({"a/1": b""})
                assert await store.changed("a/", since, wait_s=GUARD_S) >= revision


async def test_a_member_that_has_gone_silent_costs_no_more_than_the_time_of_the_wait(
    tmp_path: Path,
) -> None:
    with etcd_cluster(tmp_path) as members:
        async with await opened(*members) as store:
            changes = Changes.of(store, "a/", 0.2)
            await changes.next()
            members[0].send(signal.SIGSTOP)
            with anyio.fail_after(GUARD_S):
                await changes.next()
                await store.write({"a/1": b"1"})
                await changes.next()
                await changes.next()
            members[0].send(signal.SIGCONT)


async def test_a_lost_answer_is_told_and_the_wait_is_begun_again(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        changes = Changes.of(store, "a/", 0.05)
        store._members.call_s = 0.5
        etcd.kill()
        with anyio.fail_after(GUARD_S):
            await changes.next()
            etcd.start()
            while changes._since is None:
                await changes.next()
            store._members.call_s = 30
            revision = await store.write({"a/1": b""})
            while changes._since < revision:
                await changes.next()


async def test_a_user_is_logged_in_again_and_one_without_rights_is_refused(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        await store.write({"a/1": b""})
    etcd.post("auth/role/add", {"name": "root"})
    for user in ("root", "guest"):
        etcd.post("auth/user/add", {"name": user, "password": f"{user}'s"})
    etcd.post("auth/user/grant", {"user": "root", "role": "root"})
    etcd.post("auth/enable", {})
    async with await opened(etcd, user="root") as store:
        with anyio.fail_after(GUARD_S):
            since = await store.changed("a/", None, wait_s=0)
            etcd.kill()  # with the tokens that it gave out
            etcd.start()
            async with await opened(etcd, user="root") as another:  # waits for etcd
                revision = await another.write({"a/1": b"2"})
            for _ in range(2):
                # Some releases of etcd refuse the old token, others do not look at it.
                with suppress(MetaError):
                    assert await store.changed("a/", since, wait_s=GUARD_S) >= revision
                    break
            else:
                raise AssertionError("it does not log in again")
        store._members.place = etcd_place(f"etcd://guest@{etcd.address}/tidemark")
        store._members._password, store._members._token = (lambda: "guest's"), ""
        with pytest.raises(MetaError, match="permission denied"), anyio.fail_after(GUARD_S):
            await store.changed("a/", since, wait_s=GUARD_S)
