"""A process that starts with auth on: who must be there, and what it warns of."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.app.process_errors import CannotStart
from broker.app.security.bootstrap import bootstrap_administrator
from broker.app.security.process_access import leading_access, node_access
from broker.app.stores import store_outages
from broker.coordinator.access.stored_access import StoredAccess
from broker.coordinator.leases.leadership import lead
from broker.core.security.book_changes import with_user
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import MetaEntry, MetaError
from broker.process_settings import Settings
from tests.broker.coordinator.fakes import ShakyStore
from tests.local_broker import local_broker

pytestmark = pytest.mark.asyncio
GUARD_S = 60.0


def settings(folder: Path, **given: Any) -> Settings:
    return Settings(data_dir=folder, **given)


async def test_with_auth_off_nobody_is_asked_and_no_secret_is_shown(tmp_path: Path) -> None:
    for opened in (leading_access, node_access):
        access = await opened(settings(tmp_path), tmp_path, MemoryMetaStore())
        assert not access.gate.controls
        assert (access.metadata, access.children(), access.warnings()) == ({}, (), [])


async def test_without_an_administrator_it_refuses_to_start_and_names_the_command(
    tmp_path: Path,
) -> None:
    on = settings(tmp_path, auth="on")
    store = MemoryMetaStore()
    await StoredAccess(store).change(lambda it: with_user(it, "ann", ["reader"], replaces=False))
    with pytest.raises(CannotStart, match=f"tidemark auth bootstrap --data-dir {tmp_path}"):
        await leading_access(on, tmp_path, store)


async def test_a_file_of_users_is_read_while_there_is_no_administrator(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text("[users.root]\nroles = ['admin']\n")
    on = settings(tmp_path, auth="on", auth_bootstrap=file)
    store = MemoryMetaStore()
    access = await leading_access(on, tmp_path, store)
    assert access.gate.book.admins() == ["root"]
    # Later the records count: a user who was dropped does not come back.
    file.write_text("[users.eve]\nroles = ['admin']\n")
    assert (await leading_access(on, tmp_path, store)).gate.book.admins() == ["root"]


async def test_processes_of_one_folder_share_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text("[users.root]\nroles = ['admin']\n")
    on = settings(tmp_path, auth="on", auth_bootstrap=file)
    store = MemoryMetaStore()
    first = await leading_access(on, tmp_path, store)
    second = await node_access(on, tmp_path, store)
    assert first.metadata == second.metadata != {}
    assert second.gate.book.admins() == ["root"]
    assert "metadata" not in repr(first)


async def test_a_process_reads_the_users_before_it_refuses_one(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text("[users.root]\nroles = ['admin']\n")
    on = settings(tmp_path, auth="on", auth_bootstrap=file)
    store = MemoryMetaStore()
    leading = await leading_access(on, tmp_path, store)
    node = await node_access(on, tmp_path, store)
    await leading.records.change(lambda it: with_user(it, "ann", ["reader"], replaces=False))
    for access in (leading, node):
        await access.gate.newest()
        assert "ann" in access.gate.book.users


async def test_a_broker_with_auth_on_starts_after_the_command(tmp_path: Path) -> None:
    await bootstrap_administrator(Settings(data_dir=tmp_path), "root")
    async with local_broker(tmp_path, auth="on", pchannels=1) as broker:
        assert "/root/access" in {it.path for it in broker.system.statistics()}


@pytest.mark.parametrize("auth", ["on", "off"])
async def test_a_leader_waits_for_a_store_that_is_away_and_for_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    monkeypatch.setattr(store_outages, "RETRY_S", 0.0)
    outages = [MetaError("no answer from etcd for 6 s")] * 2

    class Away(ShakyStore):
        async def get(self, key: str) -> MetaEntry | None:
            if outages:
                raise outages.pop()
            return await super().get(key)

    file = tmp_path / "users.toml"
    file.write_text("[users.root]\nroles = ['admin']\n")
    given = settings(tmp_path, auth=auth, auth_bootstrap=file)
    store = Away(MemoryMetaStore())
    await leading_access(given, tmp_path, store)
    assert not outages
    await store.write({"auth/user/root": b"{", "auth/epoch": b"{}"})
    with anyio.fail_after(GUARD_S), pytest.raises(CannotStart, match="auth/user/root"):
        await leading_access(given, tmp_path, store)


async def test_one_that_is_no_leader_any_more_ends_instead_of_waiting(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text("[users.root]\nroles = ['admin']\n")
    store = MemoryMetaStore()
    led = await lead(store)
    await lead(store)
    with anyio.fail_after(GUARD_S), pytest.raises(CannotStart, match="newer coordinator"):
        await leading_access(settings(tmp_path, auth="on", auth_bootstrap=file), tmp_path, led)
