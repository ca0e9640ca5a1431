"""What only a file can do: survive, fill up, be locked, be somebody else's."""

# ruff: noqa: ASYNC240 - nothing else runs on the loop of a test

import asyncio
import hashlib
import itertools
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from broker.meta.sqlite import GROUP_MAX, SqliteMetaStore
from broker.meta.sqlite_steps import SCHEMA_VERSION
from broker.ports.meta import Conflict, MetaError, UnknownSchema

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


async def test_what_was_written_is_there_after_closing(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        revision = await store.write({"a": b"\x00\xff"})
    async with await SqliteMetaStore.open(path) as store:
        entry = await store.get("a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"\x00\xff", revision)
        assert await store.write({"b": b""}) > revision


async def test_the_file_is_set_up_to_survive_a_power_cut(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        assert await store._file.pragma("journal_mode") == "wal"
        assert await store._file.pragma("synchronous") == 2


async def test_closing_leaves_no_journal_behind(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        await store.write({"a": b"1"})
    assert [file.name for file in path.parent.iterdir()] == ["meta.db"]


async def test_a_new_file_opened_by_many_at_once_gets_one_schema(path: Path) -> None:
    stores: list[SqliteMetaStore] = []

    async def open_one() -> None:
        stores.append(await SqliteMetaStore.open(path))

    async with anyio.create_task_group() as openers:
        for _ in range(6):
            openers.start_soon(open_one)
    revisions = [await store.write({"a": b""}) for store in stores]
    assert revisions == sorted(set(revisions))
    for store in stores:
        await store.close()


async def test_of_two_connections_that_race_one_compare_and_set_wins(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as one, await SqliteMetaStore.open(path) as two:
        for round_number in range(20):
            before = await one.get("term")
            expect = {"term": before.revision if before else 0}
            winners: list[bytes] = []

            async def claim(
                store: SqliteMetaStore,
                name: bytes,
                *,
                expect: dict[str, int] = expect,
                winners: list[bytes] = winners,
            ) -> None:
                try:
                    await store.write({"term": name}, expect=expect)
                except Conflict:
                    return
                winners.append(name)

            async with anyio.create_task_group() as racers:
                racers.start_soon(claim, one, b"one %d" % round_number)
                racers.start_soon(claim, two, b"two %d" % round_number)
            entry = await two.get("term")
            assert entry is not None
            assert winners == [entry.value]


async def test_a_store_that_stays_locked_is_an_error_and_no_hang(path: Path) -> None:
    async with await SqliteMetaStore.open(path, busy_timeout_ms=50) as store:
        await store.write({"a": b"1"})
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(MetaError, match=r"meta\.db: database is locked"):
                await store.write({"a": b"2"})
            assert (await store.list("", limit=1000))[0][1].value == b"1"
            other.execute("ROLLBACK")
        await store.write({"a": b"3"})


async def test_a_locked_store_is_an_error_in_its_time_however_busy_the_loop_is(path: Path) -> None:
    rounds_s: list[float] = []

    async def keeps_the_loop_busy() -> None:
        while True:
            rounds_s.append(anyio.current_time())
            hashlib.pbkdf2_hmac("sha256", b"a", b"b", 60_000)
            await anyio.lowlevel.checkpoint()

    async with await SqliteMetaStore.open(path, busy_timeout_ms=600) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as others:
                others.start_soon(keeps_the_loop_busy)
                began_s = anyio.current_time()
                with pytest.raises(MetaError, match="locked"):
                    await store.write({"a": b"1"})
                # 200 attempts of 3 ms, with a round of the loop for each, would go on for long.
                assert sum(it > began_s + 0.6 for it in rounds_s) < 100
                others.cancel_scope.cancel()


async def test_a_busy_store_is_waited_for(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as writers:
                writers.start_soon(store.write, {"a": b"1"})
                await anyio.wait_all_tasks_blocked()
                other.execute("ROLLBACK")
        assert await store.get("a") is not None


async def test_a_loop_that_stalls_in_the_middle_of_a_write_keeps_the_file_from_nobody(
    path: Path,
) -> None:
    async with await SqliteMetaStore.open(path) as store:
        locked = threading.Event()

        def hears(statement: str) -> None:
            if "SAVEPOINT" in statement:
                locked.set()

        await store._file._connection.set_trace_callback(hears)
        async with anyio.create_task_group() as writers:
            writers.start_soon(store.write, {"a": b"1"})
            while not locked.is_set():
                await anyio.lowlevel.checkpoint()
            # From here on the loop stands still, until somebody else could write.
            with closing(sqlite3.connect(path, isolation_level=None, timeout=30.0)) as other:
                other.execute("BEGIN IMMEDIATE")
                assert other.execute("SELECT key FROM entries").fetchall() == [("a",)]
                other.execute("ROLLBACK")


async def test_a_write_cancelled_at_any_moment_is_whole_or_absent_and_blocks_nobody(
    path: Path,
) -> None:
    async with await SqliteMetaStore.open(path) as store:
        for yields in range(12):
            async with anyio.create_task_group() as writers:
                writers.start_soon(store.write, {f"a{yields}": b"1", f"b{yields}": b"1"})
                for _ in range(yields):
                    await anyio.lowlevel.checkpoint()
                writers.cancel_scope.cancel()
            assert (await store.get(f"a{yields}") is None) is (
                await store.get(f"b{yields}") is None
            )
        await store.write({"after": b"1"})


async def test_writes_that_wait_at_once_share_a_commit_and_each_is_whole_or_refused(
    path: Path,
) -> None:
    async with await SqliteMetaStore.open(path) as store:
        taken = await store.write({"taken": b"1"})
        outcomes: dict[str, int | str] = {}

        async def write(name: str, expect: dict[str, int]) -> None:
            try:
                outcomes[name] = await store.write({name: b"1", f"{name}'": b"1"}, expect=expect)
            except MetaError as error:
                outcomes[name] = str(error)

        said: list[str] = []
        await store._file._connection.set_trace_callback(said.append)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as writers:
                writers.start_soon(write, "a", {"taken": taken})
                await anyio.wait_all_tasks_blocked()  # it waits for the file, those behind for it
                for name, expect in {
                    "b": {"taken": 0},
                    "\ud800": {},
                    "c": {"taken": taken},
                }.items():
                    writers.start_soon(write, name, expect)
                await anyio.wait_all_tasks_blocked()
                other.execute("ROLLBACK")
        assert said.count("-- COMMIT") == 2
        assert outcomes["b"] == f"taken: expected revision 0, it is at {taken}"
        assert "surrogates not allowed" in str(outcomes["\ud800"])
        assert [key for key, _ in await store.list("", limit=1000)] == [
            "a",
            "a'",
            "c",
            "c'",
            "taken",
        ]
        for name in ("a", "c"):
            for key in (name, f"{name}'"):
                entry = await store.get(key)
                assert entry is not None
                assert entry.revision == outcomes[name]


async def test_who_shares_a_commit_with_somebody_that_is_ended_is_told_of_no_success(
    path: Path,
) -> None:
    async with await SqliteMetaStore.open(path) as store:
        loop, leaders, failed = asyncio.get_running_loop(), list[asyncio.Task[None]](), list[str]()

        async def leads() -> None:
            task = asyncio.current_task()
            assert task is not None
            leaders.append(task)
            with pytest.raises(asyncio.CancelledError):
                await store.write({"leader": b"1"})
            task.uncancel()

        async def follows(name: str) -> None:
            try:
                await store.write({name: b"1"})
            except MetaError as error:
                failed.append(str(error))

        def ends_the_leader(statement: str) -> None:
            if statement == "-- SAVEPOINT one":
                loop.call_soon_threadsafe(leaders.pop().cancel)

        async with anyio.create_task_group() as writers:
            writers.start_soon(store.get, "whoever has the turn first")
            for start in (leads, lambda: follows("a"), lambda: follows("b")):
                writers.start_soon(start)
            await anyio.lowlevel.checkpoint()
            await store._file._connection.set_trace_callback(ends_the_leader)
        assert len(failed) == 2
        assert "the write may have taken effect" in failed[0]
        assert [key for key, _ in await store.list("", limit=1000)] in ([], ["a", "b", "leader"])
        await store._file._connection.set_trace_callback(lambda _: None)
        await store.write({"after": b"1"})


async def test_more_writes_than_share_a_commit_all_get_their_turn(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        revisions: list[int] = []

        async def write(number: int) -> None:
            revisions.append(await store.write({f"{number:04d}": b"1"}))

        async with anyio.create_task_group() as writers:
            for number in range(3 * GROUP_MAX):
                writers.start_soon(write, number)
        assert len(set(revisions)) == 3 * GROUP_MAX
        assert len(await store.list("", limit=1000)) == 3 * GROUP_MAX


async def test_another_schema_version_is_refused_with_both_named(path: Path) -> None:
    await (await SqliteMetaStore.open(path)).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(UnknownSchema) as caught:
        await SqliteMetaStore.open(path)
    assert str(caught.value).endswith(
        f"meta.db: metadata schema version 7; this program knows version {SCHEMA_VERSION}"
    )
    assert path.read_bytes() == before


async def test_somebody_elses_database_is_refused_untouched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE entries (theirs)")
    before = path.read_bytes()
    with pytest.raises(MetaError, match="not Tidemark's metadata"):
        await SqliteMetaStore.open(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(MetaError, match=r"meta\.db"):
        await SqliteMetaStore.open(path)


async def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetaError, match="unable to open"):
        await SqliteMetaStore.open(tmp_path / "absent" / "meta.db")
    assert not [each for each in threading.enumerate() if "_connection_worker" in each.name]


async def test_a_key_that_is_no_text_is_refused(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        with pytest.raises(MetaError):
            await store.write({"before": b"1", "\ud800": b"1"})
        assert await store.list("", limit=1000) == []


async def test_a_file_locked_at_its_birth_is_an_error_in_bounded_time(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MetaError, match="locked"):
            await SqliteMetaStore.open(path, busy_timeout_ms=10)


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """The disk as good as full: the system refuses to write past `size` in any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_refuses_the_write_keeps_the_rest_and_recovers(path: Path) -> None:
    async with await SqliteMetaStore.open(path) as store:
        await store.write({"a": b"1"})
        journal = path.with_name("meta.db-wal")
        with no_file_grows_beyond(journal.stat().st_size + 10_000):
            with pytest.raises(MetaError, match=r"meta\.db"):
                await store.write({"a": b"2", "big": bytes(100_000)})
            assert [(key, entry.value) for key, entry in await store.list("", limit=1000)] == [
                ("a", b"1")
            ]
        await store.write({"a": b"3"})
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"3"


WRITER = """
import anyio, sys
from pathlib import Path
from broker.meta.sqlite import SqliteMetaStore

async def main():
    store = await SqliteMetaStore.open(Path(sys.argv[1]))
    for number in range(1_000_000):
        await store.write({"a": b"%d" % number, "b": b"%d" % number})
        print(number, flush=True)

anyio.run(main)
"""


async def test_every_write_that_returned_survives_kill_9(path: Path) -> None:
    acknowledged = -1
    for _ in range(3):
        with subprocess.Popen(  # noqa: ASYNC220 - the test has nothing else to do meanwhile
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT
        ) as writer:
            assert writer.stdout is not None
            for line in itertools.islice(writer.stdout, 15):
                acknowledged = int(line)
            writer.kill()
            for line in writer.stdout:
                acknowledged = int(line)
        async with await SqliteMetaStore.open(path) as store:
            first, second = await store.get("a"), await store.get("b")
        assert first is not None
        assert second is not None
        assert int(first.value) == int(second.value) >= acknowledged
