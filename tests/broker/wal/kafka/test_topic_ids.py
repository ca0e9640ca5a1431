"""Ids of topics that several hosts remember together."""

from pathlib import Path

import pytest

from broker.meta.memory_store import MemoryMetaStore
from broker.ports.wal import WriterFailed
from broker.wal.kafka.topic_ids import StoredTopicIds, TopicIdFiles
from tests.broker.coordinator.fakes import ShakyStore


async def test_what_one_host_has_remembered_the_others_know(tmp_path: Path) -> None:
    store = MemoryMetaStore()
    first = StoredTopicIds(store, TopicIdFiles(tmp_path / "a"), "key")
    second = StoredTopicIds(store, TopicIdFiles(tmp_path / "b"), "key")
    assert await second.known("t") == ""
    assert await first.remember("t", "one") == "one"
    assert await second.known("t") == "one"
    assert await second.remember("t", "two") == "one", "who was first is right"
    assert first.place("t") == "key/kafka/topic/t in etcd"


async def test_what_an_earlier_release_kept_in_files_is_taken_over(tmp_path: Path) -> None:
    files = TopicIdFiles(tmp_path)
    await files.remember("t", "old")
    store = MemoryMetaStore()
    assert await StoredTopicIds(store, files, "key").known("t") == "old"
    elsewhere = StoredTopicIds(store, TopicIdFiles(tmp_path / "b"), "key")
    assert await elsewhere.known("t") == "old"


async def test_a_store_that_fails_fails_the_opening(tmp_path: Path) -> None:
    store = ShakyStore(MemoryMetaStore())
    ids = StoredTopicIds(store, TopicIdFiles(tmp_path), "key")
    store.broken = True
    with pytest.raises(WriterFailed, match="topic t: cannot store its id"):
        await ids.remember("t", "one")


async def test_a_folder_that_cannot_be_used_fails_the_opening(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriterFailed, match="cannot write"):
        await TopicIdFiles(tmp_path / "file").remember("t", "one")
