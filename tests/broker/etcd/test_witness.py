"""A witness writes when its process has ended, and only then; with real processes and servers."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from broker.beside import beside
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.last_write import MODULE, LastWrite
from broker.etcd.place import etcd_place
from broker.etcd.witness import Witness
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, is_alive, until

USER, PASSWORD = "broker", "secret"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


async def opened(url: str, password: str = "") -> EtcdMetaStore:
    place = etcd_place(url)
    return await EtcdMetaStore.open(place, owner="me", password=lambda: password, call_s=GUARD_S)


def told(last: LastWrite) -> Witness:
    witness = Witness()
    witness.tell(last)
    return witness


def last_write(store: EtcdMetaStore, url: str, revision: int, **more: str) -> LastWrite:
    """Says `over` if `leader` is still of this revision."""
    request = store.repeatable({"over": b"yes"}, {"leader": revision})
    return LastWrite(url, request.hex(), GUARD_S, "it", **more)


def ignored_by(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {number for number in range(1, 65) if mask & 1 << number - 1}


def opened_by(pid: int) -> set[str]:
    return {it.path for it in psutil.Process(pid).open_files()}


async def waits(witness: Witness) -> int:
    """Its pid, when it ignores the signals of a stop."""

    async def ignores() -> bool:
        return bool(witness.pid) and signal.SIGTERM in ignored_by(witness.pid)

    await until(ignores)
    return witness.pid


async def until_over(store: EtcdMetaStore) -> None:
    async def over() -> bool:
        return await store.get("over") is not None

    await until(over)


async def test_it_writes_when_it_is_left_and_nothing_while_it_waits(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        revision = await store.write({"leader": b"1"})
        witness = told(last_write(store, url, revision))
        async with beside(witness.keep):
            pid = await waits(witness)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
            await witness.look()
            assert witness.pid == pid
            assert await store.get("over") is None
        witness.leave()
        await until_over(store)

        async def ended() -> bool:
            return witness.pid == 0

        await until(ended)


async def test_without_a_write_it_ends_when_it_is_left() -> None:
    witness = Witness()
    await witness.look()
    await waits(witness)
    witness.leave()

    async def ended() -> bool:
        return witness.pid == 0

    await until(ended)


async def test_the_write_has_no_effect_once_the_record_has_changed(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        revision = await store.write({"leader": b"1"})
        last = last_write(store, url, revision)
        await store.write({"leader": b"2"})
        assert not await last.carry_out()
        assert await store.get("over") is None


async def test_a_dismissed_one_ends_without_a_write(etcd: EtcdServer, tmp_path: Path) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        revision = await store.write({"leader": b"1"})
        witness = told(last_write(store, url, revision))
        await witness.dismiss()  # before it was started
        await witness.look()
        pid = await waits(witness)
        await witness.dismiss()
        assert not is_alive(pid)
        assert await store.get("over") is None


async def test_it_holds_nothing_that_its_process_had_open(etcd: EtcdServer, tmp_path: Path) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        witness = told(last_write(store, url, 1))
        with (tmp_path / "lock").open("w") as lock:
            os.set_inheritable(lock.fileno(), True)
            await witness.look()
            assert str(tmp_path / "lock") not in opened_by(await waits(witness))
            assert str(tmp_path / "lock") in opened_by(os.getpid())
            assert os.getsid(witness.pid) == witness.pid
        await witness.dismiss()


async def test_one_that_was_killed_is_replaced(etcd: EtcdServer, tmp_path: Path) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        witness = told(last_write(store, url, 1))
        await witness.look()
        first = witness.pid
        os.kill(first, signal.SIGKILL)
        witness.tell(last_write(store, url, 2))

        async def replaced() -> bool:
            await witness.look()
            return witness.pid not in (0, first)

        await until(replaced)
        await witness.dismiss()


async def test_one_that_cannot_be_replaced_is_dismissed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness()
    await witness.look()
    os.kill(witness.pid, signal.SIGKILL)

    async def killed() -> bool:
        return witness.pid == 0

    await until(killed)
    monkeypatch.setattr("broker.etcd.witness.COMMAND", (str(tmp_path / "none"),))
    await witness.look()
    await witness.dismiss()
    assert witness.pid == 0


async def test_one_that_cannot_be_started_is_no_failure(
    etcd: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    monkeypatch.setattr("broker.etcd.witness.COMMAND", (str(tmp_path / "none"),))
    async with await opened(url) as store:
        witness = told(last_write(store, url, 1))
        await witness.look()
        await witness.look()
        assert witness.pid == 0
        await witness.dismiss()


async def test_it_gives_up_an_etcd_that_does_not_answer(etcd: EtcdServer, tmp_path: Path) -> None:
    url = f"etcd://{etcd.address}/{tmp_path.name}"
    async with await opened(url) as store:
        request = store.repeatable({"over": b"yes"}, {"leader": 1})
    last = LastWrite("etcd://127.0.0.1:1/x", request.hex(), 0.2, "the leader of term 7")
    done = await anyio.run_process(
        [sys.executable, "-m", MODULE],
        input=last.line,
        check=False,
    )
    assert done.returncode == 1
    assert b"tidemark: the witness of the leader of term 7 finds no metadata" in done.stderr
    assert b"tidemark: the leader of term 7 has ended, which could not be recorded" in done.stderr


async def test_it_is_a_user_of_etcd_by_the_password_file(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd") as server:
        server.post("auth/role/add", {"name": "root"})
        for user in ("root", USER):
            server.post("auth/user/add", {"name": user, "password": PASSWORD})
            server.post("auth/user/grant", {"user": user, "role": "root"})
        server.post("auth/enable", {})
        url, file = f"etcd://{USER}@{server.address}/tidemark", tmp_path / "password"
        file.write_text(f"{PASSWORD}\n")
        async with await opened(url, PASSWORD) as store:
            revision = await store.write({"leader": b"1"})
            last = last_write(store, url, revision, password_file=str(file))
            assert PASSWORD not in repr(last)
            assert await last.carry_out()
            await until_over(store)
