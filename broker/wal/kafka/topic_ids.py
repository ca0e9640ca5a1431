"""Remembers which topic a log is in, so that one made anew under its name is told."""

from pathlib import Path
from typing import Final, Protocol

from broker.folder_lock import make_folder, replace_durably
from broker.ports.meta import Conflict, MetaError, MetaStore
from broker.ports.wal import WriterFailed

TOPIC_PREFIX: Final = "kafka/topic/"


class TopicIds(Protocol):
    """The ids that Kafka gave the topics when they were made. Calls raise WriterFailed."""

    async def known(self, topic: str) -> str:
        """The id of the topic when it was opened first; empty: it was not."""
        ...

    async def remember(self, topic: str, topic_id: str) -> str:
        """The id that is remembered, durably: this one, unless another process was first."""
        ...

    def place(self, topic: str) -> str:
        """What to remove so that the topic is forgotten; for messages."""
        ...


class NoTopicIds:
    """Remembers nothing."""

    async def known(self, topic: str) -> str:
        return ""

    async def remember(self, topic: str, topic_id: str) -> str:
        return topic_id

    def place(self, topic: str) -> str:
        return ""


class TopicIdFiles:
    """Implements `TopicIds` with a small file for each topic, for processes that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def known(self, topic: str) -> str:
        try:
            return self._file(topic).read_text().strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise WriterFailed(f"cannot read {self._file(topic)}: {error.strerror}") from error

    async def remember(self, topic: str, topic_id: str) -> str:
        try:
            make_folder(self._folder)
            replace_durably(self._file(topic), topic_id + "\n")
        except OSError as error:
            raise WriterFailed(f"cannot write {self._file(topic)}: {error.strerror}") from error
        return topic_id

    def place(self, topic: str) -> str:
        return str(self._file(topic))

    def _file(self, topic: str) -> Path:
        return self._folder / f"{topic}.id"


class StoredTopicIds:
    """Implements `TopicIds` with records in the metadata, for processes on several hosts.

    `files`: what an earlier release has remembered; taken over. `place`: where keys of the store
    are, for messages.
    """

    def __init__(self, store: MetaStore, files: TopicIdFiles, place: str) -> None:
        self._store, self._files, self._place = store, files, place

    async def known(self, topic: str) -> str:
        try:
            entry = await self._store.get(TOPIC_PREFIX + topic)
        except MetaError as error:
            raise WriterFailed(f"topic {topic}: cannot read its id: {error}") from error
        if entry is not None:
            return entry.value.decode()
        before = await self._files.known(topic)
        return await self.remember(topic, before) if before else ""

    async def remember(self, topic: str, topic_id: str) -> str:
        key = TOPIC_PREFIX + topic
        try:
            try:
                await self._store.write({key: topic_id.encode()}, expect={key: 0})
            except Conflict:
                entry = await self._store.get(key)
                return topic_id if entry is None else entry.value.decode()
        except MetaError as error:
            raise WriterFailed(f"topic {topic}: cannot store its id: {error}") from error
        return topic_id

    def place(self, topic: str) -> str:
        return f"{self._place}/{TOPIC_PREFIX}{topic} in etcd"
