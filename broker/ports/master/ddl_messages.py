"""The wire form of changes of the master's table: messages that Milvus's readers know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import VChannelName
from broker.model.master.table_change import TableChange


@dataclass(frozen=True, slots=True)
class EncodedChange:
    """A change as a message: its type, its stored form without a vchannel, its size in bytes."""

    type: int
    body: bytes
    size: int


class DdlMessages(Protocol):
    """Each change has one form, and `decode` of it is the same change."""

    def encode(self, change: TableChange) -> EncodedChange:
        """The message of a change."""
        ...

    def decode(
        self, kind: int, body: bytes, vchannels: Sequence[VChannelName]
    ) -> TableChange | None:
        """The change in a message that was broadcast to these vchannels; None: it changes nothing.

        Raises BadHeader when it cannot be decoded.
        """
        ...
