"""What becomes of the store when members of etcd stop, vanish, fill up, or go back in time."""

import base64
import secrets
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from broker.etcd import members as module
from broker.etcd.etcd_errors import NoSpace, StoreWentBack
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.etcd.store_record import StoreOwned
from broker.ports.meta import Conflict, MetaError, UnknownSchema, UnusableStore
from tests.broker.etcd.lossy_member import lossy
from tests.local_etcd import EtcdServer, etcd_cluster

MIB = 1024 * 1024


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


async def opened(
    *members: EtcdServer, owner: str = "me", revision: int = 0, call_s: float = 30
) -> EtcdMetaStore:
    """With the patience for a busy machine, where the test does not wait for its end."""
    place = etcd_place(f"etcd://{','.join([it.address for it in members])}/tidemark")
    return await EtcdMetaStore.open(place, owner=owner, revision=revision, call_s=call_s)


async def value_of(store: EtcdMetaStore, key: str) -> bytes | None:
    entry = await store.get(key)
    return entry.value if entry else None


async def test_what_was_written_survives_kill_9_of_etcd_and_the_store_goes_on(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        revision = await store.write({"a": b"1"})
        etcd.kill()
        etcd.start()  # and no wait: the store waits for it
        assert await value_of(store, "a") == b"1"
        assert await store.write({"a": b"2"}, expect={"a": revision}) > revision


async def test_an_etcd_that_is_away_is_an_error_in_bounded_time(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
        etcd.kill()
        store._members.call_s = 0.5
        with pytest.raises(MetaError, match=f"nothing listens at {etcd.address}"):
            await store.get("a")
        with pytest.raises(MetaError, match=r"no answer from etcd://127\.0\.0\.1:\d+/tidemark for"):
            await store.write({"a": b"2"})
        etcd.start()
        store._members.call_s = 30
        assert await value_of(store, "a") == b"1"


async def test_the_next_member_is_asked_when_one_stops_or_dies(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path) as members:
        async with await opened(*members) as store:
            revision = await store.write({"a": b"0"})
            # The one that is asked: it does not answer, and keeps what it was sent.
            members[0].send(signal.SIGSTOP)
            revision = await store.write({"a": b"1"}, expect={"a": revision})
            revision = await store.write({"a": b"2"}, expect={"a": revision})
            members[0].send(signal.SIGCONT)
            assert await value_of(store, "a") == b"2"
            members[1].kill()
            revision = await store.write({"a": b"3"}, expect={"a": revision})
            assert await value_of(store, "a") == b"3"
            members[1].start()
            members[2].kill()
            await store.write({"a": b"4"}, expect={"a": revision})


async def test_without_a_quorum_nothing_is_acknowledged_and_all_is_there_later(
    tmp_path: Path,
) -> None:
    with etcd_cluster(tmp_path) as members:
        async with await opened(*members) as store:
            await store.write({"a": b"1"})
            for member in members[1:]:
                member.kill()
            store._members.call_s = 2
            with pytest.raises(MetaError):
                await store.write({"a": b"2"})
            with pytest.raises(MetaError):
                await store.get("a")
            for member in members[1:]:
                member.start().wait()
            store._members.call_s = 30
            shown = await value_of(store, "a")
            assert shown in (b"1", b"2")
            assert await value_of(store, "a") == shown
            await store.write({"a": b"3"})


async def test_a_full_database_is_told_with_what_to_do_and_recovers(tmp_path: Path) -> None:
    full = EtcdServer(tmp_path / "etcd", more=["--quota-backend-bytes", str(16 * MIB)])
    with full:
        async with await opened(full) as store:
            stored: dict[str, bytes] = {}

            async def fill() -> None:
                for number in range(40):
                    key, value = f"{number % 4}", secrets.token_bytes(900_000)
                    await store.write({key: value})
                    stored[key] = value

            with pytest.raises(NoSpace, match="etcdctl defrag"):
                await fill()
            assert stored
            for key, value in stored.items():
                assert await value_of(store, key) == value
            with pytest.raises(NoSpace):
                await store.write({"small": b"1"})
            full.post("kv/compaction", {"revision": str(store.revision), "physical": True})
            full.post("maintenance/defragment", {})
            for alarm in full.post("maintenance/alarm", {"action": "GET"})["alarms"]:
                full.post("maintenance/alarm", {"action": "DEACTIVATE", **alarm})
            await store.write({"small": b"1"})
            assert await value_of(store, "small") == b"1"


async def test_an_etcd_restored_from_a_backup_is_refused_for_good(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
        restart_with_copy = etcd.folder / "copy"
        etcd.kill()
        shutil.copytree(etcd.folder / "data", restart_with_copy)
        etcd.start().wait()
        for number in range(20):
            await store.write({"a": b"%d" % number})
        etcd.kill()
        shutil.rmtree(etcd.folder / "data")
        restart_with_copy.rename(etcd.folder / "data")
        etcd.start()
        with pytest.raises(StoreWentBack, match="was restored from a backup"):
            await store.get("a")
        with pytest.raises(StoreWentBack):
            await store.write({"a": b"after"})
        seen = store.revision
    with pytest.raises(StoreWentBack, match=f"this data folder has seen it at {seen}"):
        await opened(etcd, revision=seen)
    async with await opened(etcd) as older:
        assert await value_of(older, "a") == b"1"


async def test_keys_copied_to_another_etcd_are_refused_until_the_record_is_deleted(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
    with EtcdServer(tmp_path / "other", name="other") as other:
        everything = {"key": "AA==", "range_end": "AA=="}
        for entry in etcd.post("kv/range", everything)["kvs"]:
            other.post("kv/put", {"key": entry["key"], "value": entry.get("value", "")})
        with pytest.raises(StoreWentBack, match="delete the key tidemark/tidemark/store in etcd"):
            await opened(other)
        key = base64.b64encode(b"tidemark/tidemark/store").decode()
        other.post("kv/deleterange", {"key": key})
        async with await opened(other) as store:
            assert await value_of(store, "a") == b"1"


async def test_an_endpoint_of_another_etcd_cluster_is_passed_over_and_told(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    with EtcdServer(tmp_path / "other", name="other") as other:
        async with await opened(etcd, other) as store:
            revision = await store.write({"a": b"1"})
            etcd.kill()
            store._members.call_s = 1
            with capture_logs() as lines:
                for _ in range(2):
                    with pytest.raises(MetaError, match="name members of one cluster") as told:
                        await store.get("a")
                    assert not isinstance(told.value, UnusableStore)
                with pytest.raises(MetaError, match="name members of one cluster"):
                    await store.write({"a": b"2"})
                refusals = []
                for _ in range(2):  # one of the two endpoints after the other
                    with pytest.raises(MetaError) as told:
                        await store.changed("", revision, wait_s=30)
                    refusals.append(str(told.value))
                assert len([it for it in refusals if "name members of one cluster" in it]) == 1
            assert [line["event"] for line in lines] == [
                "passing over an endpoint of another etcd cluster"
            ]
            etcd.start().wait()
            store._members.call_s = 30
            assert await value_of(store, "a") == b"1"
            assert await store.write({"a": b"3"}, expect={"a": revision}) > revision
            assert not keys_of(other)


async def test_another_etcd_cluster_at_all_endpoints_is_refused_for_good(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    """As after `etcdutl snapshot restore` with another --initial-cluster-token."""
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
        etcd.kill()
        other = EtcdServer(tmp_path / "other", name="other")
        other.port = etcd.port
        with other:
            with pytest.raises(StoreWentBack, match=r"to etcd cluster .* start this process"):
                await store.get("a")
            with pytest.raises(StoreWentBack):
                await store.write({"a": b"2"})
            assert not keys_of(other)


async def test_another_etcd_cluster_beside_a_dead_endpoint_is_refused_for_good_after_a_while(
    etcd: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore because members were lost: not all endpoints are there again."""
    monkeypatch.setattr(module, "APART_S", 1.0)
    dead = EtcdServer(tmp_path / "dead", name="dead")
    async with await opened(etcd, dead) as store:
        await store.write({"a": b"1"})
        etcd.kill()
        other = EtcdServer(tmp_path / "other", name="other")
        other.port = etcd.port
        with other:
            with pytest.raises(StoreWentBack, match=r"to etcd cluster .* start this process"):
                await store.beat()
            with pytest.raises(StoreWentBack):
                await store.write({"a": b"2"})
            assert not keys_of(other)


def keys_of(etcd: EtcdServer) -> list[bytes]:
    """What is there of the store."""
    start, end = base64.b64encode(b"tidemark/").decode(), base64.b64encode(b"tidemark0").decode()
    found = etcd.post("kv/range", {"key": start, "range_end": end})
    return [base64.b64decode(it["key"]) for it in found.get("kvs", ())]


async def test_a_second_broker_on_the_prefix_is_refused(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store, await opened(etcd) as same:
        await store.write({"a": b"1"})
        assert await value_of(same, "a") == b"1"
        with pytest.raises(StoreOwned, match="another data folder; name another prefix"):
            await opened(etcd, owner="somebody else")


@pytest.mark.parametrize(
    ("record", "told", "kind"),
    [
        (b"theirs", "is not Tidemark's", MetaError),
        (b"[1]", "is not Tidemark's", MetaError),
        (b'{"schema": 2}', "metadata schema version 2; this program knows", UnknownSchema),
    ],
)
async def test_a_record_of_somebody_else_or_of_a_later_release_is_refused_untouched(
    etcd: EtcdServer, record: bytes, told: str, kind: type[MetaError]
) -> None:
    key = base64.b64encode(b"tidemark/tidemark/store").decode()
    etcd.post("kv/put", {"key": key, "value": base64.b64encode(record).decode()})
    with pytest.raises(kind, match=told):
        await opened(etcd)
    (entry,) = etcd.post("kv/range", {"key": key})["kvs"]
    assert base64.b64decode(entry["value"]) == record


async def test_compaction_disturbs_no_write_and_no_list(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        revision = await store.write({"counter": b"0"})
        await store.write(dict.fromkeys([f"p/{number:03d}" for number in range(90)], b""))
        await store.write(dict.fromkeys([f"p/{number:03d}" for number in range(90, 180)], b""))
        async with await opened(etcd) as beside:
            compacted: list[int] = []

            async def compacts(path: str) -> None:
                """Between the first page and the second."""
                if not compacted:
                    newest = await beside.write({"p/999": b""})
                    compacted.append(newest)
                    etcd.post("kv/compaction", {"revision": str(newest), "physical": True})

            lossy(store).answered = compacts
            keys = [key for key, _ in await store.list("p/", limit=1000)]
        assert compacted
        assert keys == [*[f"p/{number:03d}" for number in range(180)], "p/999"]
        await store.write({"c": b""})
        etcd.post("kv/compaction", {"revision": str(store.revision), "physical": True})
        assert await store.write({"counter": b"1"}, expect={"counter": revision}) > revision
        with pytest.raises(Conflict):
            await store.write({"counter": b"1"}, expect={"counter": revision})


async def test_writes_go_on_while_members_are_killed_in_turn(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path) as members:
        async with await opened(*members) as store:
            done = anyio.Event()

            async def write() -> None:
                number = 0
                # More than one member is away at times, and then a write waits for long.
                while not done.is_set() or number <= len(members):
                    number += 1
                    before = await store.get("counter")
                    await store.write(
                        {"counter": b"%d" % number},
                        expect={"counter": before.revision if before else 0},
                    )
                assert await value_of(store, "counter") == b"%d" % number

            async def kill_in_turn() -> None:
                for member in members:
                    member.kill()
                    await anyio.to_thread.run_sync(member.start().wait)
                done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_in_turn)
                await write()
