"""Coordinators on several hosts: who sees whom, and of whom it is known that it has ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.app.leading.folder_candidates import candidate_of
from broker.app.leading.host_candidates import HostCandidates, announced_candidates
from broker.data_folder import DataFolder
from broker.etcd.etcd_store import EtcdMetaStore
from broker.folder_lock import make_folder


@asynccontextmanager
async def host(
    store: EtcdMetaStore, folder: Path, address: str, *, shares_locks: bool = False
) -> AsyncIterator[HostCandidates]:
    make_folder(folder)
    with candidate_of(DataFolder(folder), address) as local:
        token = folder.name
        async with announced_candidates(local, store, token, shares_locks=shares_locks) as found:
            yield found


async def test_those_of_all_hosts_are_seen_each_once(store: EtcdMetaStore, tmp_path: Path) -> None:
    async with (
        host(store, tmp_path / "x", "x:1") as first,
        host(store, tmp_path / "x", "x:2"),
        host(store, tmp_path / "y", "y:1") as other,
    ):
        await first.look(store)
        assert sorted(it.address for it in await first.running()) == ["x:1", "x:2", "y:1"]
        assert sorted(it.address for it in await other.running()) == ["x:1", "x:2", "y:1"]
        assert len({it.name for it in await first.running()}) == 3
    async with host(store, tmp_path / "y", "y:1") as alone:
        assert [it.address for it in await alone.running()] == ["y:1"]


async def test_only_of_its_own_folder_a_process_knows_who_has_ended(
    store: EtcdMetaStore, tmp_path: Path
) -> None:
    async with host(store, tmp_path / "x", "x:1") as first:
        async with (
            host(store, tmp_path / "x", "x:2") as beside,
            host(store, tmp_path / "y", "y:1") as other,
        ):
            assert not await first.has_ended(beside.own.name)
            assert not await first.has_ended(other.own.name)
        assert await first.has_ended(beside.own.name)
        assert not await first.has_ended(other.own.name), "it may be paused"
        assert not await first.has_ended("0-abc"), "an earlier release does not say which folder"


@pytest.mark.parametrize("shares_locks", [True, False])
async def test_a_leader_of_no_name_has_ended_where_its_lock_is(
    store: EtcdMetaStore, tmp_path: Path, shares_locks: bool
) -> None:
    async with host(store, tmp_path / "x", "x:1", shares_locks=shares_locks) as found:
        assert await found.has_ended("") is shares_locks


async def test_an_error_of_the_block_comes_out_as_it_is(
    store: EtcdMetaStore, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with host(store, tmp_path / "x", "x:1"):
            raise ZeroDivisionError
    assert await store.present() == {}
