"""Users, roles and tokens in the metadata store, against races, damage and a silent store."""

import re
from collections.abc import Mapping, Sequence

import pytest

from broker.coordinator.access.stored_access import EPOCH_KEY, PREFIX, RACES_MAX, StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.book_changes import (
    with_role,
    with_token,
    with_user,
    without_role,
    without_user,
)
from broker.core.security.tokens import StoredToken
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaEntry, MetaError

pytestmark = pytest.mark.asyncio


def some(book: AccessBook) -> AccessBook:
    book = with_role(book, "r", ["consume:collection:a", "*:group:*"], replaces=False)
    book = with_user(book, "ann", ["r"], replaces=False)
    token = StoredToken("t1", "ann", b"\x00salt", b"\xffdigest", 5, 77, "a note")
    return with_token(book, token, 10)


async def test_what_was_stored_is_read_back() -> None:
    store = MemoryMetaStore()
    written = await StoredAccess(store).change(some)
    found = await StoredAccess(store).read()
    assert found == written
    assert found.epoch == await StoredAccess(store).epoch() > 0


async def test_an_empty_store_holds_nobody() -> None:
    records = StoredAccess(MemoryMetaStore())
    assert await records.read() == AccessBook()
    assert await records.epoch() == 0


async def test_every_change_has_a_later_epoch_and_removes_what_is_gone() -> None:
    records = StoredAccess(MemoryMetaStore())
    first = await records.change(some)
    second = await records.change(lambda it: without_user(it, "ann"))
    third = await records.change(lambda it: without_role(it, "r"))
    assert first.epoch < second.epoch < third.epoch
    found = await records.read()
    assert (found.users, found.roles, found.tokens) == ({}, {}, {})


async def test_a_change_that_changes_nothing_is_a_change_all_the_same() -> None:
    records = StoredAccess(MemoryMetaStore())
    first = await records.change(some)
    assert (await records.change(lambda it: it)).epoch > first.epoch


async def test_no_record_holds_a_secret() -> None:
    store = MemoryMetaStore()
    await StoredAccess(store).change(some)
    values = [it.value for _, it in await store.list(PREFIX, limit=100)]
    assert not any(b"secret" in it or b"tm_" in it for it in values)


class Racing(MemoryMetaStore):
    """Somebody else changes the book just before each of the first writes."""

    def __init__(self, races: int) -> None:
        super().__init__()
        self.races = races
        self.others = 0

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        if self.races:
            self.races -= 1
            self.others += 1
            name, other = f"u{self.others}", StoredAccess(self)
            races, self.races = self.races, 0
            await other.change(lambda it: with_user(it, name, [], replaces=False))
            self.races = races
        return await super().write(puts, deletes=deletes, expect=expect)


async def test_of_two_changes_at_once_neither_is_lost() -> None:
    store = Racing(races=3)
    found = await StoredAccess(store).change(some)
    assert sorted(found.users) == ["ann", "u1", "u2", "u3"]
    assert await StoredAccess(store).read() == found


async def test_a_change_that_never_gets_its_turn_is_refused_and_may_be_repeated() -> None:
    store = Racing(races=RACES_MAX)
    with pytest.raises(Refused, match="keep changing; try again") as refused:
        await StoredAccess(store).change(some)
    assert refused.value.refusal.code is StreamingCode.RESOURCE_ACQUIRED


class Silent(MemoryMetaStore):
    """Answers no read."""

    async def get(self, key: str) -> MetaEntry | None:
        raise MetaError("the disk is gone")


async def test_a_store_that_does_not_answer_is_a_refusal_that_may_pass() -> None:
    records = StoredAccess(Silent())
    for call in (records.epoch(), records.read(), records.change(some)):
        with pytest.raises(Refused, match="the disk is gone") as refused:
            await call
        assert refused.value.refusal.code is StreamingCode.INNER


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auth/user/ann", b"{}"),
        ("auth/user/ann", b'{"version": 2}'),
        ("auth/role/r", b'{"version": 1, "name": "r", "grants": ["eat:x:y"]}'),
        ("auth/token/t", b'{"version": 1, "id": "t", "user": "a", "salt": "?", "digest": ""}'),
    ],
)
async def test_a_damaged_record_is_named(key: str, value: bytes) -> None:
    store = MemoryMetaStore()
    await store.write({key: value, EPOCH_KEY: b"{}"})
    with pytest.raises(Refused, match=re.escape(key)):
        await StoredAccess(store).read()


async def test_a_user_with_many_tokens_is_dropped_whole() -> None:
    records = StoredAccess(MemoryMetaStore())

    def many(book: AccessBook) -> AccessBook:
        book = with_user(book, "ann", [], replaces=False)
        for number in range(250):
            token = StoredToken(f"t{number}", "ann", b"s", b"d", 1)
            book = with_token(book, token, 1)
        return book

    assert len((await records.change(many)).tokens) == 250
    assert len((await records.read()).tokens) == 250
    gone = await records.change(lambda it: without_user(it, "ann"))
    assert gone.tokens == {}
    assert await records.read() == gone
