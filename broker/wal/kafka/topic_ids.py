"""Remembers which topic a log is in, so that one made anew under its name is told."""

from pathlib import Path
from typing import Protocol

from broker.folder_lock import make_folder, replace_durably


class TopicIds(Protocol):
    """The ids that Kafka gave the topics when they were made."""

    def known(self, topic: str) -> str:
        """The id of the topic when it was opened first; empty: it was not."""
        ...

    def remember(self, topic: str, topic_id: str) -> None:
        """Durable when it returns."""
        ...

    def place(self, topic: str) -> str:
        """What to remove so that the topic is forgotten; for messages."""
        ...


class NoTopicIds:
    """Remembers nothing."""

    def known(self, topic: str) -> str:
        return ""

    def remember(self, topic: str, topic_id: str) -> None:
        pass

    def place(self, topic: str) -> str:
        return ""


class TopicIdFiles:
    """Implements `TopicIds` with a small file for each topic. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self, topic: str) -> str:
        try:
            return self._file(topic).read_text().strip()
        except FileNotFoundError:
            return ""

    def remember(self, topic: str, topic_id: str) -> None:
        make_folder(self._folder)
        replace_durably(self._file(topic), topic_id + "\n")

    def place(self, topic: str) -> str:
        return str(self._file(topic))

    def _file(self, topic: str) -> Path:
        return self._folder / f"{topic}.id"
