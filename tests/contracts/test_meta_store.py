"""What every driver of `broker/ports/meta.py` promises, run on each of them."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.ports.meta import (
    LIST_MAX,
    WRITE_BYTES_MAX,
    WRITE_KEYS_MAX,
    Conflict,
    MetaEntry,
    MetaError,
    MetaStore,
    TellsChanges,
    WriteTooLarge,
    get_many,
)
from broker.ports.meta_writes import all_entries
from tests.local_etcd import EtcdServer

GUARD_S = 60.0
Opener = Callable[[], Awaitable[MetaStore]]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens a new, empty store each time it is called."""
    server: EtcdServer | None = None
    if request.param == "etcd":
        server = request.getfixturevalue("etcd")

    async def made(number: int) -> MetaStore:
        if server is not None:
            place = etcd_place(f"etcd://{server.address}/{secrets.token_hex(8)}")
            return await EtcdMetaStore.open(place, owner="me")
        if request.param == "memory":
            return MemoryMetaStore()
        return await SqliteMetaStore.open(tmp_path / f"meta-{number}.db")

    async with AsyncExitStack() as stack:
        numbers = count()

        async def open_one() -> MetaStore:
            store = await made(next(numbers))
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(open_store: Opener) -> MetaStore:
    return await open_store()


async def test_an_absent_key_has_no_entry(store: MetaStore) -> None:
    assert await store.get("a") is None
    assert await store.list("", limit=1000) == []


@pytest.fixture
async def telling(store: MetaStore) -> TellsChanges:
    assert isinstance(store, TellsChanges)
    return store


async def test_the_first_wait_for_changes_ends_at_once(telling: TellsChanges) -> None:
    with anyio.fail_after(GUARD_S):
        assert await telling.changed("a", None, wait_s=GUARD_S) >= 0


async def test_a_change_behind_the_revision_ends_the_wait(
    store: MetaStore, telling: TellsChanges
) -> None:
    await store.write({"a/1": b"1", "a/2": b"2"})
    since = await telling.changed("a/", None, wait_s=0)
    changes = [{"puts": {"a/1": b"3"}}, {"puts": {}, "deletes": ["a/2"]}, {"puts": {"a/3": b""}}]
    for change in changes:
        revision = await store.write(**change)  # type: ignore[arg-type]
        with anyio.fail_after(GUARD_S):
            told = await telling.changed("a/", since, wait_s=GUARD_S)
        assert since < revision <= told
        since = told


async def test_a_change_while_somebody_waits_ends_the_wait(
    store: MetaStore, telling: TellsChanges
) -> None:
    since, told = await telling.changed("a/", None, wait_s=0), list[int]()

    async def wait(since: int) -> None:
        told.append(await telling.changed("a/", since, wait_s=GUARD_S))

    with anyio.fail_after(GUARD_S):
        for number in range(5):
            async with anyio.create_task_group() as waiting:
                for _ in range(3):
                    waiting.start_soon(wait, since)
                await anyio.wait_all_tasks_blocked()
                revision = await store.write({f"a/{number}": b""})
            assert all(it >= revision for it in told)
            since = max(told)
            told.clear()


async def test_a_wait_without_a_change_ends_after_its_time_and_misses_none(
    store: MetaStore, telling: TellsChanges
) -> None:
    since = await telling.changed("a/", None, wait_s=0)
    assert await telling.changed("a/", since, wait_s=0.05) == since
    revision = await store.write({"a/1": b""})
    with anyio.fail_after(GUARD_S):
        assert await telling.changed("a/", since, wait_s=GUARD_S) >= revision


async def test_a_wait_can_be_cancelled_and_a_closed_store_refuses_one(
    store: MetaStore, telling: TellsChanges
) -> None:
    since = await telling.changed("a/", None, wait_s=0)
    with anyio.move_on_after(0.05) as scope:
        await telling.changed("a/", since, wait_s=GUARD_S)
    assert scope.cancelled_caught
    assert await store.get("a/1") is None
    await store.close()
    with pytest.raises(MetaError), anyio.fail_after(GUARD_S):
        await telling.changed("a/", since, wait_s=GUARD_S)


async def test_a_write_gives_the_revision_that_its_entries_have(store: MetaStore) -> None:
    revision = await store.write({"a": b"1", "b": b""})
    assert await store.get("a") == MetaEntry(b"1", revision)
    assert await store.get("b") == MetaEntry(b"", revision)


async def test_revisions_grow_over_the_whole_store(store: MetaStore) -> None:
    first = await store.write({"a": b"1"})
    second = await store.write({"b": b"2"})
    third = await store.write({}, deletes=["a"])
    assert 0 < first < second < third
    assert await store.get("b") == MetaEntry(b"2", second)


async def test_compare_and_set_succeeds_at_the_expected_revision(store: MetaStore) -> None:
    first = await store.write({"a": b"1"}, expect={"a": 0})
    second = await store.write({"a": b"2"}, expect={"a": first})
    assert await store.get("a") == MetaEntry(b"2", second)


async def test_a_conflict_names_the_key_and_where_it_is_and_changes_nothing(
    store: MetaStore,
) -> None:
    revision = await store.write({"a": b"1", "z": b"1"})
    with pytest.raises(Conflict) as caught:
        await store.write(
            {"a": b"2", "b": b"2"}, deletes=["z"], expect={"z": 99, "a": revision, "b": 7}
        )
    assert (caught.value.key, caught.value.expected, caught.value.actual) == ("b", 7, 0)
    assert await store.list("", limit=1000) == [
        ("a", MetaEntry(b"1", revision)),
        ("z", MetaEntry(b"1", revision)),
    ]


async def test_a_key_that_exists_is_not_expected_to_be_absent(store: MetaStore) -> None:
    revision = await store.write({"a": b"1"})
    with pytest.raises(Conflict) as caught:
        await store.write({"a": b"2"}, expect={"a": 0})
    assert caught.value.actual == revision


async def test_a_key_may_be_expected_without_being_written(store: MetaStore) -> None:
    revision = await store.write({"guard": b"1"})
    await store.write({"a": b"1"}, expect={"guard": revision})
    await store.write({"guard": b"2"})
    with pytest.raises(Conflict):
        await store.write({"a": b"2"}, expect={"guard": revision})


async def test_puts_and_deletes_are_one_step(store: MetaStore) -> None:
    await store.write({"a": b"1", "b": b"1"})
    revision = await store.write({"c": b"2"}, deletes=["a", "absent"])
    assert await store.get("a") is None
    assert await store.get("c") == MetaEntry(b"2", revision)
    assert [key for key, _ in await store.list("", limit=1000)] == ["b", "c"]


async def test_a_key_written_again_never_has_an_old_revision(store: MetaStore) -> None:
    first = await store.write({"a": b"1"})
    await store.write({}, deletes=["a"])
    again = await store.write({"a": b"1"}, expect={"a": 0})
    assert again > first
    with pytest.raises(Conflict):
        await store.write({"a": b"2"}, expect={"a": first})


async def test_a_prefix_lists_its_keys_in_order_and_no_others(store: MetaStore) -> None:
    keys = ["p/10", "p/2", "p/", "p", "q", "o\U0010ffff", "p/\U0010ffff", "p0", "P/1", "p/\ue000"]
    await store.write({key: key.encode() for key in keys})
    listed = await store.list("p/", limit=1000)
    assert [key for key, _ in listed] == ["p/", "p/10", "p/2", "p/\ue000", "p/\U0010ffff"]
    assert all(entry.value == key.encode() for key, entry in listed)
    assert [key for key, _ in await store.list("o\U0010ffff", limit=1000)] == ["o\U0010ffff"]
    await store.write({"\ud7ff": b"", "\ud7ff1": b"", "\ue000": b""})
    assert [key for key, _ in await store.list("\ud7ff", limit=1000)] == ["\ud7ff", "\ud7ff1"]
    assert await store.list("\U0010ffff", limit=1000) == []


async def test_of_many_who_compare_and_set_at_once_each_counts_once(store: MetaStore) -> None:
    async def add_one() -> None:
        while True:
            entry = await store.get("counter")
            value, revision = (int(entry.value), entry.revision) if entry else (0, 0)
            try:
                await store.write(
                    {"counter": str(value + 1).encode()}, expect={"counter": revision}
                )
            except Conflict:
                continue
            return

    async with anyio.create_task_group() as adders:
        for _ in range(12):
            adders.start_soon(add_one)
    entry = await store.get("counter")
    assert entry is not None
    assert entry.value == b"12"


async def test_a_closed_store_says_so_and_may_be_closed_again(store: MetaStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(MetaError, match="closed"):
        await store.get("a")
    with pytest.raises(MetaError, match="closed"):
        await store.list("", limit=1000)
    with pytest.raises(MetaError, match="closed"):
        await store.write({"a": b""})


async def test_a_write_has_so_many_keys_and_no_more_whatever_it_does_with_them(
    store: MetaStore,
) -> None:
    most = {f"k{number:02d}": b"" for number in range(WRITE_KEYS_MAX)}
    revision = await store.write(most)
    await store.write(most, deletes=list(most), expect=dict.fromkeys(most, revision))
    for puts, deletes, expect in (
        ({**most, "one": b""}, [], {}),
        (most, ["one"], {}),
        (most, [], {"one": 0}),
        ({}, [*most, "one"], {}),
    ):
        with pytest.raises(WriteTooLarge, match=r"has 101 keys and \d+ bytes") as caught:
            await store.write(puts, deletes=deletes, expect=expect)
        assert caught.value.keys == 101
    assert await store.get("one") is None
    assert len(await store.list("", limit=LIST_MAX)) == WRITE_KEYS_MAX


async def test_a_write_has_so_many_bytes_and_no_more_keys_included(store: MetaStore) -> None:
    await store.write({"ä": bytes(WRITE_BYTES_MAX - 2)})
    for puts in (
        {"ä": bytes(WRITE_BYTES_MAX - 1)},
        {"a": bytes(WRITE_BYTES_MAX // 2), "b": bytes(WRITE_BYTES_MAX // 2)},
    ):
        with pytest.raises(WriteTooLarge, match=f"may have 100 keys and {WRITE_BYTES_MAX} bytes"):
            await store.write(puts)
    assert [key for key, _ in await store.list("", limit=9)] == ["ä"]


async def test_a_large_write_beside_others_does_not_harm_them(store: MetaStore) -> None:
    refused: list[str] = []

    async def put(key: str, size: int) -> None:
        try:
            await store.write({key: bytes(size)})
        except WriteTooLarge:
            refused.append(key)

    async with anyio.create_task_group() as writers:
        for number in range(8):
            writers.start_soon(put, f"{number}", WRITE_BYTES_MAX if number == 3 else 1)
    assert refused == ["3"]
    assert len(await store.list("", limit=9)) == 7


@pytest.mark.parametrize("page", [1, 2, 3, 7, 8, 100])
async def test_pages_have_every_key_once_in_order(store: MetaStore, page: int) -> None:
    keys = ["p/", *[f"p/{number}" for number in range(4)], "p/\ue000", "p/\U0010ffff"]
    await store.write(dict.fromkeys([*keys, "o", "p", "p0", "q"], b""))
    assert [key async for key, _ in all_entries(store, "p/", page=page)] == keys
    assert [key for key, _ in await store.list("p/", limit=2, after="p/1")] == ["p/2", "p/3"]
    assert [key for key, _ in await store.list("p/", limit=2, after="p/11")] == ["p/2", "p/3"]
    assert [key for key, _ in await store.list("p/", limit=2, after="a")] == ["p/", "p/0"]
    assert await store.list("p/", limit=2, after="q") == []


@pytest.mark.parametrize("limit", [-1, 0, LIST_MAX + 1])
async def test_a_list_has_a_limit(store: MetaStore, limit: int) -> None:
    with pytest.raises(MetaError, match=f"a list of {limit} entries; the limit must be 1 to 1000"):
        await store.list("", limit=limit)


keys = st.text(st.sampled_from("ab/\x7f\ud7ff\ue000\U0010ffff"), min_size=1, max_size=4)
writes = st.tuples(
    st.dictionaries(keys, st.binary(max_size=8), max_size=3),
    st.lists(keys, max_size=2),
    st.dictionaries(keys, st.sampled_from(["now", "absent", "stale"]), max_size=2),
)


class NaiveStore:
    """What a store is, said as slowly and plainly as possible."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, bytes, int]] = []
        self.revision = 0

    def revision_of(self, key: str) -> int:
        return next((revision for name, _, revision in self.rows if name == key), 0)

    def takes(self, expect: dict[str, int]) -> bool:
        return all(self.revision_of(key) == revision for key, revision in expect.items())

    def write(self, puts: dict[str, bytes], deletes: list[str], revision: int) -> None:
        self.revision = revision
        self.rows = [row for row in self.rows if row[0] not in deletes and row[0] not in puts]
        self.rows += [(key, value, revision) for key, value in puts.items()]

    def listed(self, prefix: str) -> list[tuple[str, MetaEntry]]:
        found = sorted(row for row in self.rows if row[0][: len(prefix)] == prefix)
        return [(key, MetaEntry(value, revision)) for key, value, revision in found]


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(script=st.lists(writes, max_size=8), prefix=st.one_of(st.just(""), keys))
async def test_any_script_of_writes_ends_as_in_the_naive_store(
    open_store: Opener,
    script: list[tuple[dict[str, bytes], list[str], dict[str, str]]],
    prefix: str,
) -> None:
    store, naive = await open_store(), NaiveStore()
    for puts, deletes, wishes in script:
        stale = {"absent": 0, "stale": naive.revision + 1}
        expect = {key: stale.get(wish, naive.revision_of(key)) for key, wish in wishes.items()}
        expected = naive.takes(expect)
        try:
            revision = await store.write(puts, deletes=deletes, expect=expect)
        except Conflict:
            assert not expected
        else:
            assert expected
            assert revision > naive.revision
            naive.write(puts, deletes, revision)
        assert [key for key, _ in await store.list("", limit=1000)] == [
            key for key, _ in naive.listed("")
        ]
    assert await store.list(prefix, limit=1000) == naive.listed(prefix)
    await store.close()


async def test_several_keys_are_read_as_one_by_one(store: MetaStore) -> None:
    await store.write({"a": b"1", "b": b"2"})
    await store.write({"b": b"3"})
    keys = ["b", "absent", "a", "b"]
    assert await get_many(store, keys) == [await store.get(key) for key in keys]
    assert await get_many(store, []) == []
