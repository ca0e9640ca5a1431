"""The secret of a cluster: made once, for its owner's eyes only."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.app.process_errors import CannotStart
from broker.app.security.cluster_secret import FILE, cluster_secret, shared_secret
from broker.meta.memory_store import MemoryMetaStore


def test_it_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    made = cluster_secret(tmp_path)
    assert len(made) == 64
    assert cluster_secret(tmp_path) == made
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [it.name for it in tmp_path.iterdir()] == [FILE]


def test_two_folders_have_two_secrets(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert cluster_secret(tmp_path / "a") != cluster_secret(tmp_path / "b")


def test_processes_that_start_at_once_have_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _of_process(tmp_path), range(8)))
    assert len(set(found)) == 1


def _of_process(folder: Path) -> str:
    return cluster_secret(folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    cluster_secret(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(CannotStart, match="chmod 600"):
        cluster_secret(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 64, b"x" * 2000, b"a\tb" * 20])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(CannotStart, match=FILE):
        cluster_secret(tmp_path)


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot read"):
        cluster_secret(tmp_path / "nowhere")


async def test_hosts_of_a_cluster_have_one_secret_which_an_operator_copies(tmp_path: Path) -> None:
    store = MemoryMetaStore()
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    secret = await shared_secret(a, store)
    assert await shared_secret(a, store) == secret
    with pytest.raises(CannotStart, match="is missing: copy it from the data folder of another"):
        await shared_secret(b, store)
    assert not (b / FILE).exists()
    other = cluster_secret(b)
    with pytest.raises(CannotStart, match="is not the secret of this cluster"):
        await shared_secret(b, store)
    (b / FILE).write_text(secret)
    assert await shared_secret(b, store) == secret
    held = [entry.value for _, entry in await store.list("", limit=10)]
    assert all(it.encode() not in b"".join(held) for it in (secret, other)), "its hash alone"
