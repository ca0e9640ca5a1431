"""Backups of real log files and metadata, restored, against the list of what was appended."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.app.stores.log_place import encode_alter
from broker.backup.backup_failed import BackupFailed
from broker.backup.checking import check
from broker.backup.live_folder import LiveFolder, Read
from broker.backup.manifest import MANIFEST, Manifest, read_manifest
from broker.backup.restoring import Restore
from broker.backup.taking import Backup
from broker.coordinator.records import ALTER_KEY, COLLECTION_ID_KEY
from broker.core.cluster.wal_alter import SEGMENTED, Alter, AlterStage
from broker.data_folder import DataFolderError, hold
from broker.meta.sqlite import SqliteMetaStore
from broker.model.cut import Cut
from tests.broker.backup.data_folders import (
    FACTS,
    PCHANNELS,
    FixedCut,
    Folder,
    back_up,
    nothing,
    read_log,
)

KAFKA = "kafka://a:1/tides"
ABOVE = 5_000_000
"""A term above that of any restored log."""


def lived(folder: Folder, rng: random.Random, steps: int) -> list[int]:
    """Appends, restarts and retention in any order; returns ticks at which a cut is possible."""
    ticks = [0]
    for _ in range(steps):
        name = rng.choice(PCHANNELS)
        match rng.choice(("append", "append", "append", "large", "reopen", "truncate")):
            case "append":
                folder.append(name, rng.randint(1, 5), rng.randint(0, 200))
            case "large":
                folder.append(name, 1, 3000)
            case "reopen":
                folder.reopen(name)
            case _:
                folder.truncate(name, rng.randint(1, 20_000))
        ticks.append(folder.tick)
    return ticks


def restore(backup: Path, target: Path) -> Manifest:
    restoring = Restore(backup, target)
    manifest = restoring.plan()
    restoring.run(manifest, 0, nothing)
    return manifest


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happened_a_restored_backup_has_the_records_up_to_its_tick(
    tmp_path: Path, seed: int
) -> None:
    rng, folder = random.Random(seed), Folder(tmp_path / "data")
    identity = await folder.found()
    tick = rng.choice(lived(folder, rng, 40))
    kept = {name: folder.kept(name, tick) for name in PCHANNELS}

    manifest = await back_up(folder, identity, tmp_path / "backup", tick)
    lived(folder, rng, 10)
    assert restore(tmp_path / "backup", tmp_path / "new") == manifest

    for name in PCHANNELS:
        assert read_log(tmp_path / "new", name, ABOVE) == kept[name], name
        next_id = kept[name][-1].next_id if kept[name] else manifest.logs[name].next_id
        assert manifest.logs[name].next_id == next_id


async def test_retention_takes_nothing_from_a_backup_that_has_begun(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    for _ in range(20):
        folder.append(PCHANNELS[0], 1, 2000)
    kept = folder.kept(PCHANNELS[0], folder.tick)
    with LiveFolder(folder.data, identity) as live:
        tick = await live.choose_tick(folder.cut_at(folder.tick))
        folder.truncate(PCHANNELS[0], 1)
        assert folder.kept(PCHANNELS[0], tick) != kept
        backup = Backup(live, tick, tmp_path / "backup")
        backup.plan()
        backup.take(FACTS, nothing)
    restore(tmp_path / "backup", tmp_path / "new")
    assert read_log(tmp_path / "new", PCHANNELS[0], ABOVE) == kept
    # Nothing holds the removed files any more.
    assert not list(folder.data.log.glob(".backup-*"))


@pytest.mark.parametrize("before", [(), (Alter(1, AlterStage.DONE, KAFKA, SEGMENTED),)])
async def test_a_switch_of_the_log_that_overlaps_a_backup_fails_it(
    tmp_path: Path, before: Sequence[Alter]
) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    folder.append(PCHANNELS[0], 1, 2000)

    async def write(alter: Alter) -> None:
        async with await SqliteMetaStore.open(folder.data.metadata) as store:
            await store.write({ALTER_KEY: encode_alter(alter)})

    for ended in before:
        await write(ended)
    at_once = folder.cut_at(folder.tick)

    async def while_switched(pchannels: Sequence[str], read: Read, /) -> tuple[None, Cut]:
        found = await at_once(pchannels, read)
        await write(Alter(2, AlterStage.DONE, SEGMENTED, KAFKA))
        for name in PCHANNELS:
            shutil.rmtree(folder.data.log / name)
        return found

    with (
        pytest.raises(BackupFailed, match="began during the backup"),
        LiveFolder(folder.data, identity) as live,
    ):
        await live.choose_tick(while_switched)
    assert not list(folder.data.log.glob(".backup-*"))


async def test_a_second_backup_links_what_the_first_one_has_and_both_stand_alone(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    for _ in range(20):
        folder.append(PCHANNELS[0], 1, 2000)
    first = await back_up(folder, identity, tmp_path / "one", folder.tick)
    for _ in range(5):
        folder.append(PCHANNELS[0], 1, 2000)
    second = await back_up(folder, identity, tmp_path / "two", folder.tick, tmp_path / "one")
    shared = {it.path for it in first.files} & {it.path for it in second.files}
    linked = [it for it in shared if (tmp_path / "two" / it).stat().st_nlink == 2]
    assert len(linked) > 4
    for path in sorted((tmp_path / "one").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    restore(tmp_path / "two", tmp_path / "new")
    assert read_log(tmp_path / "new", PCHANNELS[0], ABOVE) == folder.records[PCHANNELS[0]]


async def test_a_backup_that_is_stopped_midway_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    for _ in range(5):
        folder.append(PCHANNELS[0], 1, 2000)
    steps = 0

    def stop(_: int) -> None:
        nonlocal steps
        steps += 1
        if steps == wanted:
            raise KeyboardInterrupt

    for wanted in range(1, 20):
        steps = 0
        with LiveFolder(folder.data, identity) as live:
            tick = await live.choose_tick(folder.cut_at(folder.tick))
            backup = Backup(live, tick, tmp_path / "deep" / "backup")
            backup.plan()
            try:
                backup.take(FACTS, stop)
            except KeyboardInterrupt:
                assert not (tmp_path / "deep").exists()
            else:
                assert wanted > 2
                return
    raise AssertionError("it never finished")


async def test_a_byte_that_flipped_anywhere_in_a_backup_is_found_and_its_file_named(
    tmp_path: Path,
) -> None:
    folder, rng = Folder(tmp_path / "data"), random.Random(1)
    identity = await folder.found()
    lived(folder, rng, 20)
    manifest = await back_up(folder, identity, tmp_path / "backup", folder.tick)
    check(tmp_path / "backup", manifest, nothing)
    for file in [*(it.path for it in manifest.files if it.bytes), MANIFEST]:
        path = tmp_path / "backup" / file
        whole = path.read_bytes()
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BackupFailed) as failed:
            restore(tmp_path / "backup", tmp_path / "new")
        assert file in str(failed.value)
        assert not (tmp_path / "new").exists()
        path.write_bytes(whole[:-2])
        with pytest.raises(BackupFailed, match=r"bytes instead of|damaged"):
            restore(tmp_path / "backup", tmp_path / "new")
        path.unlink()
        with pytest.raises(BackupFailed, match=r"is missing|did not finish"):
            restore(tmp_path / "backup", tmp_path / "new")
        path.write_bytes(whole)
    restore(tmp_path / "backup", tmp_path / "new")


async def test_a_damaged_log_is_not_backed_up_and_its_place_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    for _ in range(12):
        folder.append(PCHANNELS[0], 1, 2000)
    broken = sorted((folder.data.log / PCHANNELS[0]).glob("*.log"))[1]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(BackupFailed, match=rf"{broken.name}: damaged at byte 4096") as failed:
        await back_up(folder, identity, tmp_path / "backup", folder.tick)
    assert "wal verify" in str(failed.value)
    assert not (tmp_path / "backup").exists()


async def test_targets_that_are_not_empty_are_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(BackupFailed, match="is not an empty folder"):
        await back_up(folder, identity, tmp_path / "full", folder.tick)
    await back_up(folder, identity, tmp_path / "backup", folder.tick)
    with pytest.raises(BackupFailed, match="is not an empty folder"):
        restore(tmp_path / "backup", tmp_path / "full")
    assert [it.name for it in (tmp_path / "full").iterdir()] == ["mine"]
    # An empty one is used: it may be the mount point of a volume.
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "backup", tmp_path / "empty")


async def test_a_folder_of_another_cluster_is_not_backed_up(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    with pytest.raises(BackupFailed, match=f"is of cluster {identity}, the broker serves"):
        await back_up(folder, "another", tmp_path / "backup", 1)
    with pytest.raises(BackupFailed, match="is not on this machine"):
        await back_up(Folder(tmp_path / "elsewhere"), identity, tmp_path / "backup", 1)


async def test_no_copy_of_topics_is_advised_where_the_log_is_in_kafka(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    folder.data.log_prefix.parent.mkdir()
    folder.data.log_prefix.write_text("kafka://10.0.0.5:9092/tidemark\n")
    with pytest.raises(BackupFailed) as raised:
        await back_up(folder, identity, tmp_path / "backup", 1)
    told = str(raised.value)
    assert f"the log of {folder.root} is in Kafka, and a backup copies segment files" in told
    assert "replication protects such a log" in told
    assert "a copy of its topics cannot be opened" in told
    assert "tidemark wal alter --to segmented" in told


async def test_a_collection_that_comes_during_a_cut_makes_it_cut_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    cuts = 0

    class Creating(FixedCut):
        async def __call__(self, pchannels, read, /):  # type: ignore[no-untyped-def]
            nonlocal cuts
            answer = await super().__call__(pchannels, read)
            cuts += 1
            if cuts < 4:
                async with await SqliteMetaStore.open(folder.data.metadata) as store:
                    await store.write({COLLECTION_ID_KEY: b"%d" % cuts})
            return answer

    with LiveFolder(folder.data, identity) as live:
        await live.choose_tick(Creating(folder.cut_at(7).tick))
        assert live.metadata.entries(COLLECTION_ID_KEY) == {COLLECTION_ID_KEY: b"3"}
    assert cuts == 4


async def test_a_restore_that_was_killed_is_never_opened_and_one_that_fails_leaves_nothing(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path / "data")
    identity = await folder.found()
    folder.append(PCHANNELS[0], 1, 2000)
    await back_up(folder, identity, tmp_path / "backup", folder.tick)
    seen: list[str] = []

    def look(_: int) -> None:
        if (tmp_path / "new").exists():
            with pytest.raises(DataFolderError, match="in use by"), hold(tmp_path / "new"):
                pass
            seen.extend(it.name for it in (tmp_path / "new").iterdir())
            raise KeyboardInterrupt

    restoring = Restore(tmp_path / "backup", tmp_path / "new")
    with pytest.raises(KeyboardInterrupt):
        restoring.run(restoring.plan(), 0, look)
    assert not (tmp_path / "new").exists()
    assert "restore.unfinished" in seen
    # As a kill leaves it: the lock is gone with its process, the marker stays.
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "restore.unfinished").touch()
    with pytest.raises(DataFolderError, match="did not finish; delete"), hold(tmp_path / "new"):
        pass
    with pytest.raises(BackupFailed, match="not an empty folder"):
        restoring.plan()


def test_a_folder_without_a_manifest_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="there is no folder"):
        read_manifest(tmp_path / "nosuch")
    with pytest.raises(BackupFailed, match="did not finish; delete it"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": 2}')
    with pytest.raises(BackupFailed, match="has format 2; this release reads format 1"):
        read_manifest(tmp_path)
